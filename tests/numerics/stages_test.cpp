// Ranks that run only some of the positions train as ranks that run all of them, bit for bit.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "numerics/support/training.h"
#include "support/message.h"

namespace zt::test {
namespace {

// The GPT has five positions: embedding, three blocks, and the head, which is tied to the embedding.
Config staged(int data_ranks, std::vector<int> begins) {
  Config config;
  config.stage_begins = std::move(begins);
  config.ranks = data_ranks * static_cast<int>(config.stage_begins.size() - 1);
  return config;
}

Config whole(Config config) {
  config.ranks /= static_cast<int>(config.stage_begins.size() - 1);
  config.stage_begins.clear();
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

TEST(Stages, UntiedAndFrozenParameters) {
  for (const bool tied : {true, false}) {
    Config config = staged(2, {0, 2, 5});
    config.stage = 3;
    config.tied = tied;
    config.frozen = "^embedding";
    expect_equal_to_whole(config);
  }
}

}  // namespace
}  // namespace zt::test
