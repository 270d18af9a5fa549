// 16-bit parameters: stages, the types in which gradients are summed and sent, the loss scale, steps that are not finite.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <limits>

#include "numerics/support/training.h"
#include "support/message.h"
#include "support/spawn.h"

namespace zt::test {
namespace {

// Values of node_shared: false, and the default of zero.shard, which is one copy for all ranks if ranks are threads.
const std::optional<bool> kNodeShared[] = {false, std::nullopt};

// Calls test(stage, node_shared).
template <class Test>
void for_all_stages(Test test) {
  for (const int stage : {0, 1, 2, 3}) {
    for (const auto& node_shared : kNodeShared) {
      SCOPED_TRACE(fmt::format("stage {}, node_shared {}", stage, node_shared ? "= false" : "by default"));
      test(stage, node_shared);
    }
  }
}

Precision mixed(at::ScalarType params, at::ScalarType grads, at::ScalarType reduce) {
  return {params, grads, reduce};
}

TEST(MixedPrecision, StagesAreEqualWhateverTheTypes) {
  int ranks = 1;
  for (const Precision& precision :
       {Precision::bf16, Precision::fp16, mixed(at::kBFloat16, at::kBFloat16, at::kBFloat16),
        mixed(at::kFloat, at::kFloat, at::kBFloat16), mixed(at::kBFloat16, at::kBFloat16, at::kFloat),
        mixed(at::kFloat, at::kBFloat16, at::kBFloat16)}) {
    for (const char* reduce_every : {"step", "micro_batch"}) {
      ranks = ranks % 3 + 1;  // another number each time
      Config config{.ranks = ranks, .micro_batches = 2, .stage = 0, .reduce_every = reduce_every, .precision = precision};
      const Outcome first = train(config);
      EXPECT_LT(first.losses.back(), first.losses.front());
      for (const int stage : {1, 2, 3}) {
        SCOPED_TRACE(fmt::format("{}, {}, {} ranks, stage {}", precision.text(), reduce_every, ranks, stage));
        config.stage = stage;
        for (const auto& node_shared : kNodeShared) {
          config.node_shared = node_shared;
          expect_equal(first, train(config));
        }
      }
    }
  }
}

TEST(MixedPrecision, ParametersAreTheMasterRounded) {
  for_all_stages([](int stage, std::optional<bool> node_shared) {
    spawn(2, [&](const World& world) {
      const auto trainer =
          make_trainer(world, {.ranks = 2, .stage = stage, .precision = Precision::bf16, .node_shared = node_shared});
      const auto check = [&](const char* when) {
        for (const ParamInfo& param : trainer->state().model->params) {
          const at::Tensor master = trainer->tensors().master(param.name), values = trainer->tensors().parameter(param.name);
          EXPECT_EQ(master.scalar_type(), at::kFloat);
          EXPECT_TRUE(at::equal(values, master.to(at::kBFloat16))) << param.name << when << stage;
        }
      };
      check(" at the start of stage ");
      Batch batch = global_batch(0);
      for (auto& [name, field] : batch) field = field.narrow(0, 6 * world.rank, 6);
      trainer->step(batch);
      check(" after a step of stage ");
      trainer->tensors().set_parameter("embedding.weight", at::full({kVocab, 24}, 1.0 / 3));
      check(" after setting it at stage ");
    });
  });
}

TEST(MixedPrecision, SixteenBytesPerParameterWith16BitGradients) {
  const auto trainer = make_trainer({}, {.precision = mixed(at::kBFloat16, at::kBFloat16, at::kBFloat16), .tied = false});
  int64_t elements = 0, bytes = 0;
  for (const Unit& unit : trainer->state().units) elements += unit.layout.padded();
  for (const MemoryLine& line : trainer->memory()) {
    if (line.predicted < 0) continue;
    EXPECT_EQ(line.predicted, line.measured) << line.kind;
    bytes += line.predicted;
  }
  EXPECT_EQ(bytes, 16 * elements);
}

// Makes one row of the embedding infinite, and lets only rank `rank` use this row, so that only its gradients overflow.
void overflow_on_rank(Trainer& trainer, int rank, int world_rank, Batch& batch) {
  if (rank == world_rank) batch.at("tokens").fill_(1);
  at::Tensor weight = trainer.tensors().parameter("embedding.weight").to(at::kFloat);
  weight[1].fill_(std::numeric_limits<float>::infinity());
  trainer.tensors().set_parameter("embedding.weight", weight);
}

TEST(Nonfinite, OneRanksOverflowIsSkippedByAll) {
  for_all_stages([](int stage, std::optional<bool> node_shared) {
    spawn(2, [&](const World& world) {
      const Config config{.ranks = 2, .stage = stage, .precision = Precision::fp16, .tied = false, .node_shared = node_shared};
      const auto trainer = make_trainer(world, config, {.on_nonfinite = OnNonfinite::skip});
      Batch batch = global_batch(0);
      for (auto& [name, field] : batch) field = field.narrow(0, 6 * world.rank, 6).clone();
      batch.at("tokens").clamp_(2);
      overflow_on_rank(*trainer, 1, world.rank, batch);
      const at::Tensor before = trainer->tensors().master("blocks.0.mlp.up.weight");
      for (const double expected : {65536.0, 65536.0, 32768.0}) {  // hysteresis 2: the second overflow halves the scale
        const StepResult result = trainer->step(batch);
        EXPECT_TRUE(result.skipped);
        EXPECT_EQ(result.loss_scale, expected);
      }
      EXPECT_TRUE(at::equal(trainer->tensors().master("blocks.0.mlp.up.weight"), before)) << "stage " << stage;
      EXPECT_EQ(trainer->global_step(), 3);
    });
  });
}

TEST(Nonfinite, TheErrorNamesParameterRankAndMicroBatch) {
  for_all_stages([](int stage, std::optional<bool> node_shared) {
    for (const bool is_by_hand : {false, true}) {
      std::vector<std::string> said(2);
      spawn(2, [&](const World& world) {
        const auto trainer =
            make_trainer(world, {.ranks = 2, .micro_batches = 3, .stage = stage, .tied = false, .node_shared = node_shared});
        Batch batch = global_batch(0);
        for (auto& [name, field] : batch) field = field.narrow(0, 6 * world.rank, 6).clone();
        batch.at("tokens").clamp_(2);
        at::Tensor weight = trainer->tensors().parameter("embedding.weight");
        weight[1].fill_(std::numeric_limits<float>::quiet_NaN());
        trainer->tensors().set_parameter("embedding.weight", weight);
        if (world.rank == 1) batch.at("tokens").narrow(0, 4, 2).fill_(1);  // the last micro-batch of rank 1
        said[world.rank] = message_of<Fault>([&] {
          if (!is_by_hand) {
            trainer->step(batch);
            return;
          }
          for (int m = 0; m < 3; ++m) {
            Batch part = batch;
            for (auto& [name, field] : part) field = field.narrow(0, 2 * m, 2);
            trainer->forward(part);
            trainer->backward();
          }
          trainer->finish_step();
        });
      });
      EXPECT_EQ(said[0], said[1]);
      EXPECT_CONTAINS(
          said[0],
          "the first thing that is not finite is the output 'h' of layer 'embedding' in sample 0 on rank 1 in micro-batch 2");
      EXPECT_CONTAINS(said[0], "step 0: ");
    }
  });
}

TEST(Nonfinite, ALossScaleNeedsFp16AndSkippedSteps) {
  EXPECT_SAYS("a loss scale is for fp16", make_trainer({}, {.precision = Precision::bf16}, {.loss_scale = LossScaleOptions{}}));
  EXPECT_SAYS("a dynamic loss scale is found by steps that overflow",
              make_trainer({}, {.precision = Precision::fp16}, {.on_nonfinite = OnNonfinite::error}));
}

TEST(MixedPrecision, AConstantLossScaleThatIsAPowerOfTwoChangesNothingInFp32Gradients) {
  // Compares two fp16 runs whose scales differ by a factor of 2. They may differ only by the rounding of fp16.
  const auto losses = [](double scale) {
    const auto trainer = make_trainer({}, {.precision = Precision::fp16}, {.loss_scale = LossScaleOptions{.loss_scale = scale}});
    std::vector<double> all;
    for (int step = 0; step < 3; ++step) {
      const StepResult result = trainer->step(global_batch(step));
      EXPECT_FALSE(result.skipped);
      all.push_back(result.loss);
    }
    return all;
  };
  const auto high = losses(1024), higher = losses(2048);
  for (size_t i = 0; i < high.size(); ++i) EXPECT_NEAR(high[i], higher[i], 1e-3 * high[i]);  // 2^-10: fp16's own spacing
}

}  // namespace
}  // namespace zt::test
