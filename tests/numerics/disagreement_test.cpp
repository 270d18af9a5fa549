// The trainer with ranks, calls or models that do not fit together.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "flat/adam.h"
#include "layers/layers.h"
#include "numerics/support/memory_checkpoint.h"
#include "numerics/support/training.h"
#include "support/message.h"
#include "support/spawn.h"
#include "zt/base/error.h"
#include "zt/program/program.h"

namespace zt::test {
namespace {

Batch first_samples(const Batch& batch, int64_t count) {
  Batch part;
  for (const auto& [name, field] : batch) part[name] = field.narrow(0, 0, count);
  return part;
}

TEST(Disagreement, RanksTakeEqualPartsOfABatch) {
  for (const int stage : {0, 3}) {
    spawn(3, [&](const World& world) {
      const auto trainer = make_trainer(world, {.stage = stage});
      const auto refusal = message_of<Misuse>([&] { trainer->step(first_samples(global_batch(0), world.rank == 1 ? 3 : 4)); });
      EXPECT_NE(refusal.find("rank 0 has 4 samples and rank 1 has 3"), std::string::npos) << refusal;
    });
  }
}

TEST(Disagreement, AllRanksRefuseWrongValuesOnOneRank) {
  spawn(3, [&](const World& world) {
    const auto trainer = make_trainer(world, {.stage = 2});
    const std::string& name = trainer->state().model->params[0].name;
    const at::Tensor old = trainer->tensors().parameter(name);
    const at::Tensor given = world.rank == 2 ? at::zeros({3}) : old;
    const auto refusal = message_of<Misuse>([&] { trainer->tensors().set_parameter(name, given, 2); });
    EXPECT_NE(refusal.find("'" + name + "' is [37, 24], the values are"), std::string::npos) << refusal;
    EXPECT_TRUE(at::equal(trainer->tensors().parameter(name), old));
    // Only the values of rank 2 are read.
    trainer->tensors().set_parameter(name, world.rank == 2 ? old + 1 : at::zeros({1}), 2);
    EXPECT_TRUE(at::equal(trainer->tensors().parameter(name), old + 1));
  });
}

TEST(Disagreement, AnEvaluationBeforeTheFirstStepChangesNoBitOfTheStep) {
  const auto plain = make_trainer(World(), {.precision = Precision::bf16}),
             looked = make_trainer(World(), {.precision = Precision::bf16});
  looked->evaluate(
      first_samples(global_batch(7), 1));  // its number of tokens gives another power of two as the seed of backwards
  EXPECT_EQ(looked->step(global_batch(0)).grad_norm, plain->step(global_batch(0)).grad_norm);
  EXPECT_EQ(looked->state().grad_divisor, plain->state().grad_divisor);
}

TEST(Disagreement, AFailedForwardByHandChangesNothing) {
  const Config config{.micro_batches = 2};
  const auto plain = make_trainer(World(), config), failing = make_trainer(World(), config);
  Batch wrong = first_samples(global_batch(0), 6);
  wrong["tokens"] = at::full_like(wrong["tokens"], kVocab + 1);
  for (int part = 0; part < 2; ++part) {
    const Batch right = first_samples(global_batch(part), 6);
    EXPECT_ANY_THROW(failing->forward(wrong));
    EXPECT_EQ(failing->forward(right), plain->forward(right));
    failing->backward();
    plain->backward();
  }
  const StepResult got = failing->finish_step(), wanted = plain->finish_step();
  EXPECT_EQ(got.tokens, wanted.tokens);
  EXPECT_EQ(got.samples, 12);
  EXPECT_EQ(got.grad_norm, wanted.grad_norm);
}

TEST(Disagreement, ModelsThatShareALayerFreezeIndependently) {
  const auto embedding = nn::make_embedding(Value::Table{{"vocab", kVocab}, {"hidden", 8}});
  const auto loss = nn::make_lm_loss(Value::Table{{"vocab", kVocab}, {"hidden", 8}});
  const auto make = [&] { return std::make_shared<Model>(std::vector<NamedLayer>{{"e", embedding}, {"l", loss}}, 1); };
  const auto frozen = make(), trained = make();
  frozen->set_trainable("^e", false);
  TrainerOptions options{.optimizer = optim::make_adamw(Value::Table{{"lr", 1e-2}})};
  const auto trainer = Trainer::make(std::make_shared<Program>(trained, 1, Precision::fp32), options);
  const at::Tensor before = trainer->tensors().parameter("e.weight");
  trainer->step(global_batch(0));
  EXPECT_FALSE(at::equal(trainer->tensors().parameter("e.weight"), before));
}

// Returns its input and declares the loss term "aux". Adds to it if `adds` is true.
class Auxiliary : public Layer {
 public:
  Auxiliary(bool declares, bool adds) : declares_(declares), adds_(adds) {}
  std::vector<at::Tensor> forward(at::TensorList in, Context& context) override {
    if (adds_) context.loss("aux", in[0].square().sum(), Per::sample);
    return {in[0]};
  }
  Io io() const override {
    Io io;
    if (declares_) io.losses = {{"aux", Per::sample}};
    return io;
  }
  std::string kind() const override { return "auxiliary"; }

 private:
  bool declares_, adds_;
};

std::shared_ptr<Model> model_with(std::shared_ptr<Layer> aux) {
  const auto embedding = nn::make_embedding(Value::Table{{"vocab", kVocab}, {"hidden", 8}});
  const auto loss = nn::make_lm_loss(Value::Table{{"vocab", kVocab}, {"hidden", 8}});
  return std::make_shared<Model>(std::vector<NamedLayer>{{"e", embedding}, {"aux", std::move(aux)}, {"l", loss}}, 1);
}

TEST(Disagreement, ALossTermThatOnlySomeRanksDeclareIsNamedOnAll) {
  for (const int stage : {0, 2}) {
    spawn(2, [&](const World& world) {
      const auto model = [&] { return model_with(std::make_shared<Auxiliary>(world.rank == 1, false)); };
      const auto refusal = message_of<Misuse>([&] { make_trainer(world, {.stage = stage, .model = model}); });
      EXPECT_CONTAINS(refusal, "loss term 1 is 'loss' per token on rank 0 and 'aux' per sample on rank 1 of 'dp': ");
    });
  }
}

// All ranks name the same action, in the program of the same rank.
TEST(Disagreement, TheFirstActionThatDiffersIsNamed) {
  spawn(3, [](const World& world) {
    const auto refusal =
        message_of<Misuse>([&] { make_trainer(world, {.ranks = 3, .stage = 1, .recompute_every = world.rank == 2 ? 1 : 0}); });
    EXPECT_CONTAINS(
        refusal,
        "rank 2 built other programs than rank 0: the script must make the same model and passes on every rank. In the "
        "program of rank 0, action 2 is 'F 1 0 keep=inputs' on rank 2 and 'F 1 0' on rank 0.");
  });
  spawn(2, [](const World& world) {
    const auto refusal =
        message_of<Misuse>([&] { make_trainer(world, {.ranks = 2, .micro_batches = 1 + world.rank, .stage = 1}); });
    EXPECT_CONTAINS(refusal, "In the program of rank 0, the header is 'program mode=train micro_batches=2 ");
    EXPECT_CONTAINS(refusal, ", and action 11 is 'F 0 1' on rank 1 and 'REDUCE_GRAD ");
  });
}

TEST(Disagreement, ARankThatAddsNothingToATermCountsAsZero) {
  spawn(2, [](const World& world) {
    const auto model = [&] { return model_with(std::make_shared<Auxiliary>(true, world.rank == 1)); };
    const auto trainer = make_trainer(world, {.stage = 2, .model = model});
    const StepResult result = trainer->step(first_samples(global_batch(0), 4));
    ASSERT_EQ(result.terms.size(), 2U);
    EXPECT_EQ(result.terms[0].name, "aux");
    EXPECT_GT(result.terms[0].value, 0);
    EXPECT_EQ(result.loss, result.terms[0].value + result.terms[1].value);
  });
}

TEST(Disagreement, ALossTermThatIsNotDeclaredIsNamed) {
  spawn(2, [](const World& world) {
    const auto trainer = make_trainer(world, {.model = [] { return model_with(std::make_shared<Auxiliary>(false, true)); }});
    const auto refusal = message_of<Misuse>([&] { trainer->step(first_samples(global_batch(0), 4)); });
    EXPECT_CONTAINS(refusal, "the loss 'aux' per sample is not declared");
  });
}

// Inserts an action and counts how often it runs.
class Counting : public Pass {
 public:
  class Handler : public ActionHandler {
   public:
    Work start(const Action&, StepState&) override {
      ++runs;
      return {};
    }
    int runs = 0;
  };
  Counting()
      : kind_(register_kind(
            {"COUNTED", Index::none, false, "is counted", [](const Action&, const ModelInfo&) { return Resources(); }})) {}
  std::string name() const override { return "counting"; }
  Phase phase() const override { return Phase::overlap; }
  RankProgram apply(RankProgram program, const ModelInfo&, const Coord&) const override {
    program.actions.insert(program.actions.begin() + 1, Action{.kind = kind_});
    return program;
  }
  std::vector<std::pair<KindId, std::shared_ptr<ActionHandler>>> handlers() const override { return {{kind_, handler}}; }
  std::shared_ptr<Handler> handler = std::make_shared<Handler>();

 private:
  KindId kind_;
};

TEST(Disagreement, TheSearchForNonfiniteValuesRunsNoActionOfTheScriptAgain) {
  const auto counting = std::make_shared<Counting>();
  const auto model = nn::make_gpt(Value::Table{{"layers", 1}, {"hidden", 8}, {"heads", 1}, {"vocab", kVocab}, {"seq", kSeq}});
  TrainerOptions options{.optimizer = optim::make_adamw(Value::Table{{"lr", 1e-2}}), .on_nonfinite = OnNonfinite::skip};
  const auto trainer = Trainer::make(std::make_shared<Program>(model, 1, Precision::fp32)->apply(counting), options);
  const std::string& name = trainer->state().model->params.back().name;
  trainer->tensors().set_parameter(name, at::full_like(trainer->tensors().parameter(name), std::nan("")));
  EXPECT_TRUE(trainer->step(global_batch(0)).skipped);
  EXPECT_EQ(counting->handler->runs, 1);
}

TEST(Disagreement, ALoadedTrainerResumesBitForBit) {
  for (const bool shares : {false, true}) {
    for (const auto& [stage, precision] :
         {std::pair(0, Precision::bf16), {1, Precision::fp32}, {2, Precision::fp16}, {3, Precision::bf16}}) {
      spawn(2, [&, stage = stage, precision = precision](const World& world) {
        Config config{.ranks = 2, .stage = stage, .precision = precision};
        if (stage > 0) config.shard["node_shared"] = shares;
        const auto mine = [&](int step) {
          Batch part;
          for (const auto& [name, field] : global_batch(step)) part[name] = field.narrow(0, world.rank * 6, 6);
          return part;
        };
        MemoryCheckpoint checkpoint;
        const auto first = make_trainer(world, config), second = make_trainer(world, config);
        for (int step = 0; step < 2; ++step) first->step(mine(step));
        checkpoint.save(*first);
        checkpoint.load(*second);
        const StepResult wanted = first->step(mine(2)), got = second->step(mine(2));
        EXPECT_EQ(got.loss, wanted.loss);
        EXPECT_EQ(got.grad_norm, wanted.grad_norm);
        EXPECT_EQ(got.step, 2);
        for (const ParamInfo& param : first->state().model->params)
          EXPECT_TRUE(at::equal(first->tensors().parameter(param.name), second->tensors().parameter(param.name))) << param.name;
        second->forward(first_samples(mine(3), 6));
        const auto refusal = message_of<Misuse>([&] { checkpoint.load(*second); });
        EXPECT_NE(refusal.find("by hand are under way"), std::string::npos) << refusal;
      });
    }
  }
}

}  // namespace
}  // namespace zt::test
