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

TEST(Equality, StageZeroAndOne) {
  for (const int ranks : {1, 2, 3, 4}) {
    for (const char* reduce_every : {"step", "micro_batch"}) {
      Config config{
          .ranks = ranks, .micro_batches = ranks == 4 ? 3 : 2, .stage = 0, .reduce_every = reduce_every, .dropout = 0.1};
      const Outcome stage_0 = train(config);
      config.stage = 1;
      SCOPED_TRACE(fmt::format("{} ranks, reduce_every = {}", ranks, reduce_every));
      expect_equal(stage_0, train(config));
    }
  }
}

TEST(Equality, NoZeroPassAndStageZeroOnOneRank) {
  expect_equal(train({.stage = -1}), train({.stage = 0}));
}

TEST(Equality, RecomputeOnAndOff) {
  Config config{.ranks = 2, .micro_batches = 2, .stage = 1, .dropout = 0.2};
  const Outcome kept = train(config);
  for (const int every : {1, 2}) {
    config.recompute_every = every;
    expect_equal(kept, train(config));
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
