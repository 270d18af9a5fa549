// The memory formulas of ZeRO: the published totals, and each kind of memory.
#include "memory.h"

#include <gtest/gtest.h>

#include "support/message.h"

namespace zt::test {
namespace {

using zero::memory_of;
using zero::MemoryEstimate;
using zero::MemoryOptions;

const Precision kClassic{at::kBFloat16, at::kBFloat16, at::kBFloat16};

TEST(Memory, ReproducesThePublishedFormulas) {
  for (const int64_t params : {int64_t{1'500'000'000}, int64_t{7'000'000'000}, int64_t{1'000'000'000'000}}) {
    for (const int64_t ranks : {1, 8, 64, 1000}) {
      const auto total = [&](int stage) {
        return memory_of({.params = params, .ranks = ranks, .stage = stage, .precision = kClassic}).total();
      };
      const int64_t part = params / ranks;
      EXPECT_EQ(total(0), 16 * params);
      EXPECT_EQ(total(1), 4 * params + 12 * part);
      EXPECT_EQ(total(2), 2 * params + 14 * part);
      EXPECT_EQ(total(3), 16 * part);
    }
  }
}

TEST(Memory, KindsFollowThePrecision) {
  const MemoryEstimate bf16 = memory_of({.params = 1000, .ranks = 3, .stage = 1, .precision = Precision::bf16});
  EXPECT_EQ(bf16.parameters, 2000);
  EXPECT_EQ(bf16.gradients, 4000);  // summed in fp32
  EXPECT_EQ(bf16.master, 4 * 334);  // the longest part
  EXPECT_EQ(bf16.optimizer, 8 * 334);
  const MemoryEstimate fp32 = memory_of({.params = 1000, .ranks = 2, .stage = 2, .states = 1});
  EXPECT_EQ(fp32.parameters, 4000);
  EXPECT_EQ(fp32.gradients, 2000);
  EXPECT_EQ(fp32.master, 0);
  EXPECT_EQ(fp32.optimizer, 2000);
}

TEST(Memory, WhatIsWholeForATimeIsExtra) {
  const MemoryEstimate memory = memory_of({.params = 1000, .ranks = 2, .stage = 3, .live = 10, .bucket = 20, .activations = 7});
  EXPECT_EQ(memory.buckets, 4 * 10 + 4 * 20);
  EXPECT_EQ(memory.total(), 16 * 500 + 120 + 7);
}

TEST(Memory, OneCopyANodeIsSharedByItsRanks) {
  const MemoryEstimate memory = memory_of({.params = 1000, .ranks = 2, .stage = 1, .node_shared = true});
  EXPECT_EQ(memory.parameters, 2000);
  EXPECT_EQ(memory.gradients, 4000);
}

TEST(Memory, OptionsAreChecked) {
  EXPECT_SAYS("zero.memory: option 'params' is missing", zero::parse_memory_options(Value::Table{}));
  EXPECT_SAYS("zero.memory.stage must lie between 0 and 3",
              zero::parse_memory_options(Value::Table{{"params", 1}, {"stage", 4}}));
  EXPECT_SAYS("zero.memory.precision: unknown precision 'fp8'",
              zero::parse_memory_options(Value::Table{{"params", 1}, {"precision", "fp8"}}));
}

}  // namespace
}  // namespace zt::test
