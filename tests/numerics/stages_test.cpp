// Ranks that run only some of the positions train as ranks that run all of them, bit for bit.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <utility>

#include "layers/layers.h"
#include "numerics/support/hand_stages.h"
#include "support/message.h"
#include "support/spawn.h"
#include "zt/base/error.h"

namespace zt::test {
namespace {

// The GPT has five positions: embedding, three blocks, and the head, which is tied to the embedding.
Config staged(int data_ranks, const std::vector<int>& begins) {
  Config config;
  split_by_hand(config, begins);
  config.ranks = data_ranks * config.stage_ranks;
  return config;
}

Config whole(Config config) {
  config.ranks /= std::exchange(config.stage_ranks, 1);
  config.split = nullptr;
  return config;
}

void expect_equal_to_whole(Config config) {
  const Config reference = whole(config);
  const Outcome apart = train(config), together = train(reference);
  expect_equal(apart, together);
  if (config.gradient) {
    EXPECT_TRUE(at::equal(apart.first_gradient, together.first_gradient));
  }
}

TEST(Stages, TwoStagesWithTiedEmbeddingsAtEachZeroStage) {
  for (const int data_ranks : {1, 2}) {
    for (const int stage : {0, 1, 2, 3}) {
      SCOPED_TRACE(fmt::format("{} data ranks, stage {}", data_ranks, stage));
      Config config = staged(data_ranks, {0, 2, 5});
      config.stage = stage;
      config.micro_batches = 3;
      config.gradient = true;
      expect_equal_to_whole(config);
    }
  }
}

TEST(Stages, ThreeStagesWithDropoutRecomputeAndBf16) {
  Config config = staged(1, {0, 1, 4, 5});
  config.stage = 2;
  config.micro_batches = 2;
  config.dropout = 0.1;
  config.recompute_every = 1;
  config.precision = Precision::bf16;
  expect_equal_to_whole(config);
}

TEST(Stages, SplitBackwards) {
  for (const int stage : {0, 3}) {
    Config config = staged(2, {0, 2, 5});
    config.stage = stage;
    config.micro_batches = 2;
    config.split_backward = true;
    Config reference = whole(config);
    reference.split_backward = false;
    expect_equal(train(config), train(reference));
  }
}

TEST(Stages, BothValuesOfReduceEvery) {
  for (const char* reduce_every : {"step", "micro_batch"}) {
    Config config = staged(2, {0, 3, 5});
    config.stage = 1;
    config.micro_batches = 2;
    config.reduce_every = reduce_every;
    expect_equal_to_whole(config);
  }
}

struct Evaluation {
  double loss = 0;
  at::Tensor logits;  // of all data ranks, in order
};

// Evaluates and infers one global batch. Expects that ranks with the same samples get the same outputs.
Evaluation evaluate(const Config& config) {
  const int data_ranks = config.ranks / config.stage_ranks;
  std::vector<at::Tensor> logits(static_cast<size_t>(config.ranks));
  Evaluation evaluation;
  spawn(config.ranks, [&](const World& world) {
    const auto trainer = make_trainer(world, config);
    const int64_t part = kSamples / data_ranks;
    const Batch mine = part_of(global_batch(0), world.rank % data_ranks * part, part);
    const double loss = trainer->evaluate(mine).loss;
    logits[static_cast<size_t>(world.rank)] = trainer->infer(mine).at("logits");
    if (world.rank == 0) evaluation.loss = loss;
  });
  for (int rank = 0; rank < config.ranks; ++rank) EXPECT_TRUE(at::equal(logits[rank], logits[rank % data_ranks]));
  evaluation.logits = at::cat(at::TensorList(logits.data(), static_cast<size_t>(data_ranks)));
  return evaluation;
}

TEST(Stages, EvaluatesAndInfersInMicroBatchesOnEveryRank) {
  Config config = staged(2, {0, 2, 5});
  config.stage = 3;
  config.precision = Precision::fp64;
  config.eval_micro_batches = 3;
  const Evaluation apart = evaluate(config), together = evaluate(whole(config));
  EXPECT_EQ(apart.loss, together.loss);
  EXPECT_TRUE(at::equal(apart.logits, together.logits));
  config.eval_micro_batches = 1;
  const Evaluation at_once = evaluate(whole(config));
  EXPECT_LE(std::abs(apart.loss - at_once.loss), 1e-12 * at_once.loss);
  EXPECT_LE(distance(apart.logits, at_once.logits), 1e-12);
}

TEST(Stages, ForwardByHandSaysWhyItCannotRun) {
  Config config = staged(1, {0, 2, 5});
  config.stage = 0;
  spawn(2, [&](const World& world) {
    const auto trainer = make_trainer(world, config);
    EXPECT_CONTAINS(message_of<Misuse>([&] { trainer->forward(global_batch(0)); }),
                    "ranks along 'pp' run different positions, so forward and backward cannot run one by one");
  });
}

TEST(Stages, UntiedAndFrozenParameters) {
  for (const bool tied : {true, false}) {
    Config config = staged(2, {0, 2, 5});
    config.stage = 3;
    config.tied = tied;
    config.frozen = "^embedding";
    expect_equal_to_whole(config);
  }
}

// Returns h and adds the loss "early" over the tokens that it counts: those with a label, or all of them.
class EarlyLoss : public Layer {
 public:
  explicit EarlyLoss(bool counts_all) : counts_all_(counts_all) {}
  std::vector<at::Tensor> forward(at::TensorList in, Context& context) override {
    const at::Tensor valid = context.batch("labels") >= 0;
    context.loss("early", (in[0].square().mean(2) * valid).sum(), Per::token);
    return {in[0]};
  }
  Io io() const override { return {.losses = {{"early", Per::token}}}; }
  Counts count(const BatchField& batch) const override {
    const at::Tensor labels = batch("labels");
    return {.tokens = counts_all_ ? labels.numel() : (labels >= 0).sum().item<int64_t>()};
  }
  std::string kind() const override { return "early_loss"; }

 private:
  bool counts_all_;
};

std::shared_ptr<Model> model_with_early_loss(bool counts_all) {
  const auto embedding = nn::make_embedding(Value::Table{{"vocab", kVocab}, {"hidden", 8}});
  const auto loss = nn::make_lm_loss(Value::Table{{"vocab", kVocab}, {"hidden", 8}});
  return std::make_shared<Model>(
      std::vector<NamedLayer>{{"e", embedding}, {"early", std::make_shared<EarlyLoss>(counts_all)}, {"l", loss}}, 1);
}

Config two_loss_stages(int data_ranks, bool counts_all) {
  Config config{.ranks = 2 * data_ranks, .micro_batches = 2, .stage = 3, .gradient = true};
  split_by_hand(config, {0, 2, 3});
  config.model = [counts_all] { return model_with_early_loss(counts_all); };
  return config;
}

TEST(Stages, ALossLayerOnEachStageTrainsAsOnOneRank) {
  for (const int data_ranks : {1, 2}) {
    const Config config = two_loss_stages(data_ranks, false);
    const Outcome apart = train(config), together = train(whole(config));
    expect_equal(apart, together);
    EXPECT_TRUE(at::equal(apart.first_gradient, together.first_gradient));
  }
}

TEST(Stages, DifferentCountsAreRefusedOnAllRanks) {
  spawn(4, [](const World& world) {
    const auto trainer = make_trainer(world, two_loss_stages(2, true));
    const Batch mine = part_of(global_batch(0), world.rank % 2 * 6, 6);
    EXPECT_CONTAINS(message_of<Misuse>([&] { trainer->step(mine); }),
                    "the loss layers of the ranks 0 and 2 of 'pp+dp' count 60 and");
  });
}

}  // namespace
}  // namespace zt::test
