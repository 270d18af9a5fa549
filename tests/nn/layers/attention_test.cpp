// Tests masks, positions and shapes of attention.
#include <gtest/gtest.h>

#include "layers/layers.h"
#include "nn/support/run.h"

namespace zt::nn {
namespace {

using Table = Value::Table;
using test::initialised;
using test::longs;
using test::misuse_of;

TEST(Attention, PackedDocumentsAreSeparateDocuments) {
  for (const bool causal : {true, false}) {
    const auto subject =
        initialised(make_attention(Table{{"hidden", 8}, {"heads", 2}, {"rotary", true}, {"causal", causal}, {"std", 0.5}}));
    const at::Tensor x = at::randn({1, 7, 8}, at::kDouble);
    test::FakeContext packed, alone;
    packed.fields["segments"] = longs({0, 0, 0, 1, 1, 1, 1}, {1, 7});
    packed.fields["positions"] = longs({0, 1, 2, 0, 1, 2, 3}, {1, 7});
    const at::Tensor whole = subject.forward({x}, packed)[0];
    EXPECT_LE(test::distance(whole.narrow(1, 0, 3), subject.forward({x.narrow(1, 0, 3)}, alone)[0]), 1e-13);
    EXPECT_LE(test::distance(whole.narrow(1, 3, 4), subject.forward({x.narrow(1, 3, 4)}, alone)[0]), 1e-13);
  }
}

TEST(Attention, OnlyBidirectionalSeesLaterTokens) {
  for (const bool causal : {true, false}) {
    const auto subject = initialised(make_attention(Table{{"hidden", 8}, {"heads", 2}, {"causal", causal}}));
    const at::Tensor x = at::randn({1, 5, 8}, at::kDouble);
    at::Tensor changed = x.clone();
    changed.select(1, 4).add_(1);
    test::FakeContext context;
    const at::Tensor before = subject.forward({x}, context)[0], after = subject.forward({changed}, context)[0];
    EXPECT_EQ(at::equal(before.narrow(1, 0, 4), after.narrow(1, 0, 4)), causal);
  }
}

TEST(Attention, RotaryDependsOnDistancesOnly) {
  const auto subject = initialised(make_attention(Table{{"hidden", 8}, {"heads", 2}, {"rotary", true}, {"std", 0.5}}));
  const at::Tensor x = at::randn({1, 4, 8}, at::kDouble);
  test::FakeContext near, far;
  far.fields["positions"] = longs({100, 101, 102, 103}, {1, 4});
  EXPECT_LE(test::distance(subject.forward({x}, far)[0], subject.forward({x}, near)[0]), 1e-12);
}

TEST(Attention, EmptyAndShortInputs) {
  const auto subject = initialised(make_attention(Table{{"hidden", 8}, {"heads", 2}, {"rotary", true}}));
  test::FakeContext context;
  EXPECT_EQ(subject.forward({at::zeros({0, 4, 8}, at::kDouble)}, context)[0].sizes(), (at::IntArrayRef{0, 4, 8}));
  EXPECT_EQ(subject.forward({at::ones({2, 1, 8}, at::kDouble)}, context)[0].sizes(), (at::IntArrayRef{2, 1, 8}));
}

TEST(Attention, RefusesWrongOptionsAndShapes) {
  EXPECT_NE(misuse_of([] {
              make_attention(Table{{"hidden", 10}, {"heads", 3}});
            }).find("cannot be divided into 3 heads"),
            std::string::npos);
  EXPECT_NE(misuse_of([] {
              make_attention(Table{{"hidden", 8}, {"heads", 4}, {"kv_heads", 3}});
            }).find("divisor"),
            std::string::npos);
  EXPECT_NE(misuse_of([] {
              make_attention(Table{{"hidden", 9}, {"heads", 3}, {"rotary", true}});
            }).find("even head_dim"),
            std::string::npos);
  const auto subject = initialised(make_attention(Table{{"hidden", 8}, {"heads", 2}}));
  test::FakeContext context;
  EXPECT_NE(misuse_of([&] {
              subject.forward({at::ones({2, 8}, at::kDouble)}, context);
            }).find("[samples, seq, 8]"),
            std::string::npos);
  context.fields["segments"] = longs({0, 0}, {1, 2});
  EXPECT_NE(misuse_of([&] {
              subject.forward({at::ones({1, 3, 8}, at::kDouble)}, context);
            }).find("segments must be int64 [1, 3]"),
            std::string::npos);
}

}  // namespace
}  // namespace zt::nn
