// Tests masks, positions and shapes of attention.
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
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
  for (const bool qk_norm : {false, true}) {
    const auto subject = initialised(make_attention(Table{{"hidden", 8}, {"heads", 2}, {"rotary", true}, {"qk_norm", qk_norm}}));
    test::FakeContext context;
    const at::Tensor none = at::zeros({0, 4, 8}, at::kDouble);
    const test::Result result = test::run(subject, {none}, context, none);
    EXPECT_EQ(result.out.sizes(), none.sizes());
    for (const auto& [name, gradient] : result.grads) EXPECT_EQ(gradient.abs().max().item<double>(), 0) << name;
    EXPECT_EQ(subject.forward({at::ones({2, 1, 8}, at::kDouble)}, context)[0].sizes(), (at::IntArrayRef{2, 1, 8}));
  }
}

// --- norm of heads ---

TEST(HeadNorm, HasOneWeightForEachKindOfHeads) {
  const auto layer = make_attention(Table{{"hidden", 12}, {"heads", 4}, {"kv_heads", 2}, {"bias", false}, {"qk_norm", true}});
  std::vector<std::string> names;
  for (const auto& param : layer->params()) {
    names.push_back(param->name);
    if (!param->name.ends_with("norm.weight")) continue;
    EXPECT_EQ(param->shape, (std::vector<int64_t>{3}));
    EXPECT_FALSE(param->is_matrix);
    std::vector<double> values(3);
    param->init(1, param->name, 0, values);
    EXPECT_EQ(values, (std::vector<double>{1, 1, 1}));
  }
  EXPECT_EQ(names, (std::vector<std::string>{"qkv.weight", "q_norm.weight", "k_norm.weight", "out.weight"}));
}

// A factor of the projection of queries and keys has no effect: the norm divides by it, apart from eps.
TEST(HeadNorm, RemovesTheScaleOfQueriesAndKeys) {
  const auto subject = initialised(
      make_attention(Table{{"hidden", 8}, {"heads", 2}, {"std", 1.0}, {"bias", false}, {"qk_norm", true}, {"qk_norm_eps", 0.0}}));
  const at::Tensor x = at::randn({2, 5, 8}, at::kDouble);
  test::FakeContext context;
  const at::NoGradGuard no_grad;
  const at::Tensor before = subject.forward({x}, context)[0];
  test::values_of(*subject.params[0]).narrow(0, 0, 16).mul_(8);
  EXPECT_LE(test::distance(subject.forward({x}, context)[0], before), 1e-13);
}

// The result does not depend on how threads divide the rows.
TEST(HeadNorm, DoesNotDependOnThreads) {
  const int threads = at::get_num_threads();
  const auto subject = initialised(
      make_attention(Table{{"hidden", 64}, {"heads", 16}, {"kv_heads", 4}, {"rotary", true}, {"qk_norm", true}}), at::kFloat);
  const at::Tensor x = at::randn({2, 700, 64}), cot = at::randn({2, 700, 64});
  const auto result = [&](int count) {
    at::set_num_threads(count);
    test::FakeContext context;
    return test::run(subject, {x}, context, cot);
  };
  const test::Result one = result(1), three = result(3);
  at::set_num_threads(threads);
  EXPECT_TRUE(at::equal(one.out, three.out));
  for (const std::string name : {"q_norm.weight", "k_norm.weight"})
    EXPECT_TRUE(at::equal(one.grads.at(name), three.grads.at(name)));
}

TEST(HeadNorm, SplitsAsTheOtherNorms) {
  const auto subject = initialised(make_attention(Table{{"hidden", 8}, {"heads", 2}, {"bias", false}, {"qk_norm", true}}));
  const at::Tensor x = at::randn({1, 3, 8}, at::kDouble), cot = at::randn({1, 3, 8}, at::kDouble);
  test::FakeContext waiting;
  waiting.defers = true;
  test::run(subject, {x}, waiting, cot);
  EXPECT_EQ(waiting.deferred.size(), 2U);                       // the two matmuls
  EXPECT_TRUE(waiting.sunk.contains(subject.params[1].get()));  // q_norm
  EXPECT_TRUE(waiting.sunk.contains(subject.params[2].get()));  // k_norm
  EXPECT_FALSE(waiting.sunk.contains(subject.params[0].get()));
}

// --- errors ---

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
  EXPECT_NE(misuse_of([] {
              make_attention(Table{{"hidden", 8}, {"heads", 2}, {"qk_norm", 1}});
            }).find("nn.attention.qk_norm must be true or false"),
            std::string::npos);
  EXPECT_NE(misuse_of([] {
              make_block(Table{{"hidden", 8}, {"heads", 2}, {"qk_norm", true}, {"qk_norm_eps", -1}});
            }).find("nn.block.qk_norm_eps must be at least 0"),
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
