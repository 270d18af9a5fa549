// Steps for which training systems were found to compute wrong gradients, norms or updates. All stages must have the bits of
// stage 0, and must be near the gradient of one rank in fp64.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "layers/layers.h"
#include "numerics/support/odd_layers.h"
#include "numerics/support/promises.h"
#include "support/spawn.h"

namespace zt::test {
namespace {

using Table = Value::Table;

std::shared_ptr<Layer> block(int64_t hidden) {
  return nn::make_block(Table{{"hidden", hidden}, {"heads", 2}});
}

// Returns the model: embedding, `middle`, head.
std::shared_ptr<Model> model_with(std::vector<NamedLayer> middle) {
  const Table shape{{"vocab", kVocab}, {"hidden", 12}};
  middle.insert(middle.begin(), {"embedding", nn::make_embedding(shape)});
  middle.push_back({"head", nn::make_lm_loss(shape)});
  return std::make_shared<Model>(std::move(middle), 5);
}

// Returns a model with one block at two positions and another block between them. Embedding and head are tied.
std::shared_ptr<Model> model_of_a_block_used_twice() {
  const auto embedding = nn::make_embedding(Table{{"vocab", kVocab}, {"hidden", 12}, {"positions", kSeq}});
  const auto twice = block(12);
  const auto head = nn::make_lm_loss(Table{{"vocab", kVocab}, {"hidden", 12}, {"tied", Object::of(embedding)}});
  return std::make_shared<Model>(
      std::vector<NamedLayer>{
          {"embedding", embedding}, {"twice", twice}, {"between", block(12)}, {"twice", twice}, {"head", head}},
      5);
}

std::shared_ptr<Model> model_with_a_hot_layer() {
  return model_with({{"hot", make_hot(1024, 768, 1024)}});
}

TEST(WrongGradients, OneRanksGradientIsTheSlopeOfItsLoss) {
  for (const bool tied : {true, false}) expect_slope_of_loss({.micro_batches = 3, .tied = tied});
  for (const int recompute_every : {0, 1})
    expect_slope_of_loss({.micro_batches = 2, .recompute_every = recompute_every, .model = model_of_a_block_used_twice});
  expect_slope_of_loss({.model = model_with_a_hot_layer});
  expect_slope_of_loss({.model = [] { return model_with({{"partly", make_partly_used()}, {"unread", make_unread(12)}}); }});
  expect_slope_of_loss({.model = [] { return std::make_shared<Model>(std::vector<NamedLayer>{{"guess", make_guess()}}, 5); }});
}

TEST(WrongGradients, ALayerUsedTwice) {
  expect_promises({.bucket_bytes = 0, .steps = 2, .model = model_of_a_block_used_twice}, kTwoAndFourRanks);
}

TEST(WrongGradients, ALayerUsedTwiceAndRecomputed) {
  Config config{.recompute_every = 1, .steps = 2, .model = model_of_a_block_used_twice};
  expect_promises(config, kTwoAndFourRanks);
}

TEST(WrongGradients, SeveralBackwardsBeforeAStep) {
  expect_promises({.steps = 2}, kTwoAndFourRanks);
}

TEST(WrongGradients, SeveralBackwardsBeforeAStepByHand) {
  expect_promises({.steps = 2, .by_hand = true}, kTwoAndFourRanks);
}

// The units of the GPT have about 4,500 bytes (embedding), 29,000 bytes (each block) and 200 bytes (head).
TEST(WrongGradients, BucketsThatHoldAllAndOneUnitAndSomeUnits) {
  for (const int64_t bytes : {int64_t{1} << 40, int64_t{1}, int64_t{40000}}) {
    SCOPED_TRACE(bytes);
    expect_promises({.bucket_bytes = bytes, .steps = 2}, {{bytes == 40000 ? 4 : 2, 3}});
    expect_promises({.bucket_bytes = 40000, .steps = 2, .shard = {{"gather_bucket_bytes", bytes}}}, {{2, 3}});
  }
}

// Returns a batch in which only the first valid[i] labels of sample i are not ignored.
Batch batch_with_valid(int step, const std::vector<int64_t>& valid) {
  Batch batch = global_batch(step);
  at::Tensor& labels = batch.at("labels");
  labels = (batch.at("tokens") * 7 + 3).remainder(kVocab);
  for (int64_t sample = 0; sample < kSamples; ++sample) labels[sample].slice(0, valid[sample]).fill_(-100);
  return batch;
}

// Some micro-batches, ranks and pairs of ranks have no valid token; others have one, or all.
TEST(WrongGradients, UnevenAndNoValidTokens) {
  const std::vector<int64_t> some_ranks{10, 1, 0, 0, 0, 0, 7, 0, 1, 0, 0, 0}, one_sample{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 3};
  for (const auto& valid : {some_ranks, one_sample}) {
    for (const bool by_hand : {false, true}) {
      Config config{.steps = 2, .by_hand = by_hand, .model = [] { return model_with({{"block", block(12)}}); }};
      config.batch = [valid](int step) { return batch_with_valid(step, valid); };
      expect_promises(config, by_hand ? std::vector<Split>{{2, 3}, {4, 1}} : std::vector<Split>{{4, 3}, {2, 1}});
    }
  }
}

// The last rank owns nearly all of the norm. The other ranks must clip by the same norm.
TEST(WrongGradients, ClippingByANormOfOneShard) {
  const Config config{.clip = 0.5, .steps = 3, .is_plain = true, .model = model_with_a_hot_layer};
  const Outcome exact = exact_run(config);
  EXPECT_NEAR(exact.norms[0], 16000, 0.1) << "256 elements of 1000; head and embedding add little";
  expect_promises(config, kTwoAndFourRanks);
  Config other = config;
  other.precision = Precision::fp64;
  for (const int ranks : {2, 4}) {
    other.ranks = ranks;
    for (other.stage = 0; other.stage <= 3; ++other.stage) {
      EXPECT_LT(distance(train(other).weights, exact.weights), 1e-12) << ranks << " ranks, stage " << other.stage;
    }
  }
}

struct Overflow {
  std::vector<double> losses, norms, scales;  // one per step
  std::vector<bool> skipped;
  Outcome end;
};

// Trains with an overflow at step `at`: its last sample, on the last rank, makes gradients overflow. The next step uses the same
// batch without the overflow. -1: no overflow.
Overflow train_with_overflow(int ranks, int stage, int64_t hysteresis, int at) {
  Config config{.ranks = ranks, .micro_batches = 3, .stage = stage, .reduce_every = "step", .precision = Precision::fp16};
  config.node_shared = std::nullopt;
  config.loss_scale = LossScaleOptions{.hysteresis = hysteresis};
  config.model = [] { return model_with({{"block", block(12)}, {"spike", make_spike()}}); };
  config.batch = [at](int step) {
    Batch batch = global_batch(at >= 0 && step > at ? step - 1 : step);
    batch["spike"] = at::zeros({kSamples});
    if (step == at) batch.at("spike")[kSamples - 1] = 60000;
    return batch;
  };
  std::vector<Overflow> all(static_cast<size_t>(ranks));
  spawn(ranks, [&](const World& world) {
    RankRun run(world, config);
    Overflow& mine = all[static_cast<size_t>(world.rank)];
    for (int step = 0; step < (at < 0 ? 3 : 4); ++step) {
      const StepResult result = run.step();
      mine.losses.push_back(result.loss);
      mine.norms.push_back(result.grad_norm.value());
      mine.scales.push_back(result.loss_scale);
      mine.skipped.push_back(result.skipped);
    }
    mine.end = run.finish();
  });
  for (const Overflow& rank : all) {
    EXPECT_EQ(rank.scales, all[0].scales);
    EXPECT_EQ(rank.skipped, all[0].skipped);
    EXPECT_TRUE(at::equal(rank.end.weights, all[0].end.weights));
  }
  return all[0];
}

TEST(WrongGradients, AnOverflowOnOneRankSkipsTheStepWithoutATrace) {
  for (const int ranks : {2, 4}) {
    const Overflow never = train_with_overflow(ranks, 0, 2, -1);
    EXPECT_EQ(never.skipped, std::vector<bool>(3, false));
    for (const int stage : {0, 1, 2, 3}) {
      SCOPED_TRACE(fmt::format("{} ranks, stage {}", ranks, stage));
      Overflow run = train_with_overflow(ranks, stage, 2, 1);
      EXPECT_EQ(run.skipped, (std::vector<bool>{false, true, false, false}));
      EXPECT_EQ(run.scales, std::vector<double>(4, 65536)) << "only a second overflow would halve the scale";
      EXPECT_FALSE(std::isfinite(run.norms[1]));
      run.losses.erase(run.losses.begin() + 1);
      run.norms.erase(run.norms.begin() + 1);
      EXPECT_EQ(run.losses, never.losses);
      EXPECT_EQ(run.norms, never.norms);
      EXPECT_EQ(run.end.evaluated, never.end.evaluated);
      EXPECT_TRUE(at::equal(run.end.weights, never.end.weights));
    }
  }
}

TEST(WrongGradients, AnOverflowOnOneRankHalvesTheScaleOfAll) {
  for (const int ranks : {2, 4}) {
    const Overflow first = train_with_overflow(ranks, 0, 1, 1);
    EXPECT_EQ(first.scales, (std::vector<double>{65536, 65536, 32768, 32768}));
    for (const int stage : {1, 2, 3}) {
      SCOPED_TRACE(fmt::format("{} ranks, stage {}", ranks, stage));
      const Overflow run = train_with_overflow(ranks, stage, 1, 1);
      EXPECT_EQ(run.scales, first.scales);
      EXPECT_TRUE(at::equal(run.end.weights, first.end.weights));
    }
  }
}

}  // namespace
}  // namespace zt::test
