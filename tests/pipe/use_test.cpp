// Tests evaluation, inference, predicted memory and error messages of trainers with a pipeline.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "layers/layers.h"
#include "pipe/support/pipelines.h"
#include "schedule/recipes.h"
#include "support/message.h"
#include "support/spawn.h"
#include "zt/base/error.h"
#include "zt/program/kind.h"

namespace zt::test {
namespace {

Config small(int ranks, const char* schedule) {
  Config whole{.ranks = 1, .micro_batches = 4, .eval_micro_batches = 3, .stage = 1};
  return through({.ranks = ranks, .name = schedule}, whole);
}

TEST(PipelineUse, StagesThatReadOtherSamplesAreRefusedOnAllRanks) {
  spawn(2, [](const World& world) {
    const auto trainer = make_trainer(world, small(2, "one_f_one_b"));
    EXPECT_CONTAINS(message_of<Misuse>([&] { trainer->step(global_batch(world.rank)); }),
                    "the ranks 0 and 1 of 'pp+dp' run parts of one model and read different samples");
    EXPECT_GT(trainer->step(global_batch(0)).loss, 0) << "the trainer stays usable";
  });
}

// A rank may leave out fields that its stages do not read.
TEST(PipelineUse, RanksNeedTheFieldsThatTheirStagesRead) {
  double with_all = 0;
  spawn(2, [&](const World& world) {
    const double loss = make_trainer(world, small(2, "zb_h1"))->step(global_batch(0)).loss;
    if (world.rank == 0) with_all = loss;
  });
  spawn(2, [&](const World& world) {
    Batch batch = global_batch(0);
    batch.erase(world.rank == 0 ? "labels" : "tokens");
    EXPECT_EQ(make_trainer(world, small(2, "zb_h1"))->step(batch).loss, with_all);
  });
}

TEST(PipelineUse, EvaluatesAndInfersOnEveryRank) {
  for (const char* schedule : {"one_f_one_b", "interleaved", "zb_v"}) {
    double loss = 0;
    at::Tensor logits;
    spawn(1, [&](const World& world) {
      const auto trainer = make_trainer(world, {.ranks = 1, .micro_batches = 4, .eval_micro_batches = 3, .stage = 1});
      loss = trainer->evaluate(global_batch(0)).loss;
      logits = trainer->infer(Batch{{"tokens", global_batch(0).at("tokens")}}).at("logits");
    });
    spawn(3, [&](const World& world) {
      const auto trainer = make_trainer(world, small(3, schedule));
      EXPECT_EQ(trainer->evaluate(global_batch(0)).loss, loss) << schedule;
      EXPECT_TRUE(at::equal(trainer->infer(Batch{{"tokens", global_batch(0).at("tokens")}}).at("logits"), logits)) << schedule;
    });
  }
}

// No backward follows, so each value goes when it was read.
TEST(PipelineUse, EvaluationsKeepNothing) {
  spawn(2, [](const World& world) {
    const auto trainer = make_trainer(world, small(2, "one_f_one_b"));
    for (const Mode mode : {Mode::eval, Mode::generate}) {
      const Program& program = trainer->program();
      const RankProgram built = program.build(mode, program.coord());
      const auto is_forward = [](const Action& action) { return action.kind == Kinds::get().forward; };
      EXPECT_GT(std::ranges::count_if(built.actions, is_forward), 0);
      for (const Action& action : built.actions) {
        EXPECT_TRUE(!is_forward(action) || action.keep() == Keep::none) << action.target;
      }
    }
  });
}

TEST(PipelineUse, StepsByHandSayWhyTheyCannotRun) {
  spawn(2, [](const World& world) {
    const auto trainer = make_trainer(world, small(2, "one_f_one_b"));
    EXPECT_CONTAINS(message_of<Misuse>([&] { trainer->forward(global_batch(0)); }),
                    "so forward and backward cannot run one by one");
  });
}

// A middle stage sends values on and gradients back: of 12 samples of 10 tokens and 24 columns in float32.
TEST(PipelineUse, PlansCountTheBytesOfMessages) {
  spawn(3, [](const World& world) {
    const auto plan = make_trainer(world, small(3, "one_f_one_b"))->plan(global_batch(0)).to_json();
    ASSERT_EQ(plan.size(), 3U);
    constexpr int64_t kBytes = 12 * kSeq * 24 * 4;
    for (size_t rank = 0; rank < 3; ++rank) {
      EXPECT_EQ(plan[rank]["sent"].value("SEND", 0), rank < 2 ? kBytes : 0) << rank;
      EXPECT_EQ(plan[rank]["sent"].value("SEND_GRAD", 0), rank > 0 ? kBytes : 0) << rank;
    }
  });
}

// Attention has temporaries of its own, and half a backward holds what the other half needs.
TEST(PipelineUse, PredictsActivationsOfAttention) {
  for (const pipe::Recipe& recipe : pipe::recipes()) {
    Config whole{.ranks = 1, .micro_batches = 4, .stage = 0, .steps = 1};
    whole.model = [] {
      return nn::make_gpt(Value::Table{{"layers", 4}, {"hidden", 32}, {"heads", 2}, {"vocab", 11}, {"seq", 48}, {"ffn", 16}});
    };
    spawn(2, [&](const World& world) {
      const auto trainer = make_trainer(world, through({.ranks = 2, .name = recipe.name}, whole));
      const at::Tensor tokens = at::arange(8 * 48).remainder(11).view({8, 48});
      const Batch batch{{"tokens", tokens}, {"labels", tokens}};
      trainer->step(batch);
      for (const MemoryLine& line : trainer->memory()) {
        if (line.kind != "activations") continue;
        const auto measured = static_cast<double>(line.measured);
        EXPECT_NEAR(static_cast<double>(trainer->predict_activations(batch)), measured, 0.003 * measured)
            << recipe.name << " rank " << world.rank;
      }
    });
  }
}

TEST(PipelineUse, PredictsActivationsWithinThreePercent) {
  for (const pipe::Recipe& recipe : pipe::recipes()) {
    Config whole{.ranks = 1, .micro_batches = 6, .stage = 0, .steps = 1, .samples = 96};
    spawn(2, [&](const World& world) {
      const auto trainer = make_trainer(world, through({.ranks = 2, .name = recipe.name}, whole));
      const Batch batch = global_batch(0, 0, whole.samples);
      trainer->step(batch);
      double measured = 0;
      for (const MemoryLine& line : trainer->memory()) {
        if (line.kind == "activations") measured = static_cast<double>(line.measured);
      }
      EXPECT_GT(measured, 0);
      EXPECT_NEAR(static_cast<double>(trainer->predict_activations(batch)), measured, 0.03 * measured)
          << recipe.name << " rank " << world.rank;
    });
  }
}

}  // namespace
}  // namespace zt::test
