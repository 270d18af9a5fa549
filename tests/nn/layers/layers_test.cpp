// Tests tokens, options and shapes that are wrong or empty.
#include "layers/layers.h"

#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include "nn/support/run.h"

namespace zt::nn {
namespace {

using Table = Value::Table;
using test::initialised;
using test::longs;
using test::misuse_of;

// --- embedding ---

TEST(Embedding, RefusesTokensOutOfRange) {
  const auto subject = initialised(make_embedding(Table{{"vocab", 5}, {"hidden", 3}, {"positions", 2}}));
  test::FakeContext context;
  context.fields["tokens"] = longs({0, 1, 2, 5}, {2, 2});
  EXPECT_NE(
      misuse_of([&] { subject.forward({}, context); }).find("token 5 at sample 1, index 1 is outside the embedding's 5 rows"),
      std::string::npos);
  context.fields["tokens"] = at::zeros({1, 3}, at::kLong);
  EXPECT_NE(misuse_of([&] { subject.forward({}, context); }).find("position 2 at sample 0, index 2"), std::string::npos);
  context.fields["tokens"] = at::zeros({1, 3}, at::kInt);
  const std::string narrow = misuse_of([&] { subject.forward({}, context); });
  EXPECT_NE(narrow.find("takes tokens as int64 [samples, seq], got"), std::string::npos) << narrow;
  EXPECT_NE(narrow.find("int32"), std::string::npos) << narrow;
  EXPECT_NE(narrow.find("convert them with tokens:to \"int64\""), std::string::npos) << narrow;
  context.fields["tokens"] = at::zeros({3}, at::kLong);
  EXPECT_EQ(misuse_of([&] { subject.forward({}, context); }).find("convert"), std::string::npos) << "the dtype is right";
}

TEST(Embedding, NoSamples) {
  const auto subject = initialised(make_embedding(Table{{"vocab", 5}, {"hidden", 3}}));
  test::FakeContext context;
  context.fields["tokens"] = at::zeros({0, 4}, at::kLong);
  EXPECT_EQ(subject.forward({}, context)[0].sizes(), (at::IntArrayRef{0, 4, 3}));
}

// --- options and shapes ---

TEST(Options, UnknownOnesAreErrors) {
  EXPECT_EQ(misuse_of([] {
              make_linear(Table{{"in", 3}, {"out", 2}, {"bais", false}});
            }),
            "nn.linear: unknown option 'bais': did you mean 'bias'?");
  EXPECT_NE(misuse_of([] { make_linear(Table{{"in", 3}}); }).find("option 'out' is missing"), std::string::npos);
  EXPECT_NE(misuse_of([] {
              make_mlp(Table{{"hidden", 3}, {"ffn", 2}, {"activation", "gelo"}});
            }).find("must be one of 'gelu'"),
            std::string::npos);
  EXPECT_NE(misuse_of([] { make_dropout(Table{{"p", 1.5}}); }).find("nn.dropout.p must lie between"), std::string::npos);
  EXPECT_NE(misuse_of([] {
              make_gpt(Table{{"layers", 1}, {"hidden", 4}, {"heads", 2}, {"vocab", 5}});
            }).find("need option 'seq'"),
            std::string::npos);
  EXPECT_NE(misuse_of([] {
              make_linear(Table{{"in", 0}, {"out", 2}});
            }).find("nn.linear.in must be at least 1"),
            std::string::npos);
}

TEST(Shapes, WrongColumnsAreErrors) {
  test::FakeContext context;
  const at::Tensor x = at::zeros({2, 2, 5}, at::kDouble);
  for (const auto& layer : {make_linear(Table{{"in", 4}, {"out", 2}}), make_rmsnorm(Table{{"hidden", 4}}),
                            make_layernorm(Table{{"hidden", 4}}), make_mlp(Table{{"hidden", 4}, {"ffn", 3}})}) {
    const auto subject = initialised(layer);
    EXPECT_NE(misuse_of([&] { subject.forward({x}, context); }).find("takes [..., 4], got float64[2, 2, 5]"), std::string::npos)
        << layer->kind();
  }
}

TEST(Shapes, NoRows) {
  test::FakeContext context;
  const auto subject = initialised(make_block(Table{{"hidden", 4}, {"heads", 2}}));
  const at::Tensor x = at::zeros({0, 3, 4}, at::kDouble);
  const test::Result result = test::run(subject, {x}, context, x);
  EXPECT_EQ(result.out.sizes(), x.sizes());
  for (const auto& [name, gradient] : result.grads) EXPECT_EQ(gradient.abs().max().item<double>(), 0) << name;
}

TEST(Shapes, EvaluationKeepsNoGraph) {
  const auto subject = initialised(make_block(Table{{"hidden", 4}, {"heads", 2}}));
  test::FakeContext context;
  const at::NoGradGuard no_grad;
  EXPECT_FALSE(subject.forward({at::ones({1, 3, 4}, at::kDouble)}, context)[0].requires_grad());
}

}  // namespace
}  // namespace zt::nn
