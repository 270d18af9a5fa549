// Promises of equality: runs agree in every bit of losses, norms and weights.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "numerics/support/training.h"

namespace zt::test {
namespace {

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

TEST(Equality, PrefetchAndUnitsThatStayWhole) {
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

TEST(Equality, ResidencyOptions) {
  Config config{.ranks = 2, .micro_batches = 2, .stage = 3, .recompute_every = 1};
  const Outcome one = train(config);
  for (const Value::Table& options : std::vector<Value::Table>{{{"keep", "forward"}},
                                                               {{"max_live", 16000}, {"prefetch", 5}},
                                                               {{"keep", "max_live"}, {"max_live", 16000}, {"prefetch", 2}},
                                                               {{"keep", "forward"}, {"max_live", 40000}, {"prefetch", 3}}}) {
    config.shard = options;
    expect_equal(one, train(config));
  }
}

TEST(Equality, OverlapOnAndOff) {
  for (const int stage : {0, 1, 2, 3}) {
    Config config{.ranks = 3, .micro_batches = 2, .stage = stage, .reduce_every = "micro_batch", .bucket_bytes = 0};
    config.shard = {{"overlap", false}};
    const Outcome apart = train(config);
    config.shard = {{"overlap", true}};
    expect_equal(apart, train(config));
  }
}

TEST(Equality, OneCopyPerNodeAndPerRank) {
  for (const int ranks : {1, 2, 3}) {
    for (const int stage : {1, 2, 3}) {
      Config config{
          .ranks = ranks, .micro_batches = 2, .stage = stage, .precision = stage == 2 ? Precision::bf16 : Precision::fp32};
      const Outcome apart = train(config);
      config.shard = {{"node_shared", true}};
      const Outcome shared = train(config);
      expect_equal(apart, shared);
      EXPECT_EQ(apart.evaluated, shared.evaluated);
    }
  }
}

// The groups are contiguous and their size is a power of two, so the trees of the groups are subtrees of the tree over all ranks.
TEST(Equality, GroupsThatHoldTheSameShards) {
  for (const int stage : {1, 2, 3}) {
    Config config{.ranks = 4, .micro_batches = 3, .stage = stage, .reduce_every = "step"};
    const Outcome one_group = train(config);
    config.replicas = 2;
    expect_equal(one_group, train(config));
    config.shard = {{"node_shared", true}};
    expect_equal(one_group, train(config));
  }
  Config frozen{
      .ranks = 4, .stage = 3, .reduce_every = "step", .frozen = R"(^blocks\.1\.)"};  // a unit without a gradient is sharded, too
  const Outcome one_group = train(frozen);
  frozen.replicas = 2;
  expect_equal(one_group, train(frozen));
}

TEST(Equality, StepsInSlices) {
  // The MLPs have 4,728 elements: at stage 0 there are two slices.
  for (const int stage : {0, 1, 2}) {
    Config config{.ranks = 2, .micro_batches = 2, .stage = stage};
    const Outcome whole = train(config);
    config.shard = {{"sub_group_size", 300}};  // rounded up to 4,096
    expect_equal(whole, train(config));
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

TEST(Equality, OfBackwardsInTwoParts) {
  for (const bool tied : {true, false}) {
    for (const int recompute : {0, 1}) {
      Config config{.ranks = 2, .micro_batches = 2, .stage = 2, .recompute_every = recompute, .dropout = 0.1, .tied = tied};
      const Outcome whole = train(config);
      config.split_backward = true;
      expect_equal(train(config), whole);
    }
  }
  Config config{.ranks = 2, .micro_batches = 3, .stage = 1, .precision = Precision::bf16, .shard = {{"grad_dtype", "bf16"}}};
  const Outcome whole = train(config);
  config.split_backward = true;
  expect_equal(train(config), whole);
}

}  // namespace
}  // namespace zt::test
