// Promises of equality: every bit of losses, norms and weights.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "training.h"

namespace zt::test {
namespace {

void expect_equal(const Outcome& a, const Outcome& b) {
  EXPECT_EQ(a.losses, b.losses);
  EXPECT_EQ(a.norms, b.norms);
  EXPECT_TRUE(at::equal(a.weights, b.weights));
}

TEST(Equality, RunningTwice) {
  const Config config{.ranks = 2, .micro_batches = 2, .stage = 1, .dropout = 0.1};
  expect_equal(train(config), train(config));
}

TEST(Equality, Stages) {
  for (const int ranks : {1, 2, 3, 4}) {
    for (const char* reduce_every : {"step", "micro_batch"}) {
      Config config{
          .ranks = ranks, .micro_batches = ranks == 4 ? 3 : 2, .stage = 0, .reduce_every = reduce_every, .dropout = 0.1};
      const Outcome stage_0 = train(config);
      for (const int stage : {1, 2, 3}) {
        config.stage = stage;
        SCOPED_TRACE(fmt::format("{} ranks, stage {}, reduce_every = {}", ranks, stage, reduce_every));
        const Outcome other = train(config);
        expect_equal(stage_0, other);
        EXPECT_EQ(stage_0.evaluated, other.evaluated);
      }
    }
  }
}

TEST(Equality, PrefetchAndWhatStaysWhole) {
  Config config{.ranks = 2, .micro_batches = 2, .stage = 3, .recompute_every = 1};
  const Outcome one = train(config);
  for (const int prefetch : {0, 2, 7}) {
    config.prefetch = prefetch;
    expect_equal(one, train(config));
  }
  config.persist_below = 2000;
  config.max_reuse_distance = 4000;
  expect_equal(one, train(config));
}

TEST(Equality, NoZeroPassAndStageZeroOnOneRank) {
  expect_equal(train({.stage = -1}), train({.stage = 0}));
}

TEST(Equality, RecomputeOnAndOff) {
  Config config{.ranks = 2, .micro_batches = 2, .stage = 1, .dropout = 0.2};
  const Outcome kept = train(config);
  for (const int every : {1, 2}) {
    config.recompute_every = every;
    for (const int stage : {1, 2, 3}) {
      config.stage = stage;
      config.reduce_every = "step";
      expect_equal(kept, train(config));
    }
  }
}

TEST(Equality, BucketSize) {
  Config config{.ranks = 3, .micro_batches = 2, .stage = 1};
  const Outcome merged = train(config);
  config.bucket_bytes = 0;
  expect_equal(merged, train(config));
}

TEST(Equality, TrainingChangesTheWeights) {
  const Outcome run = train({.ranks = 2, .stage = 1});
  EXPECT_NE(run.losses[0], run.losses[1]);
  EXPECT_LT(run.losses.back(), run.losses.front());
}

}  // namespace
}  // namespace zt::test
