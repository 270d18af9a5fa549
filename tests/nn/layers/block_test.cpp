// Tests attention_block and residual: around an MLP they compute what a block computes.
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "layers/layers.h"
#include "nn/support/run.h"

namespace zt::nn {
namespace {

using Table = Value::Table;

// Returns attention_block, mlp and residual as one function with the parameter names of a block.
test::Subject in_three_layers(const Table& options, const Table& mlp_options, double dropout) {
  const auto first = make_attention_block(options), mlp = make_mlp(mlp_options),
             last = make_residual(Table{{"dropout", dropout}});
  Params params = first->params();
  for (const auto& param : mlp->params()) {
    param->name = "mlp." + param->name;
    params.push_back(param);
  }
  const auto forward = [=](at::TensorList in, Context& context) {
    const auto both = first->forward(in, context);
    return last->forward({mlp->forward({both[0]}, context)[0], both[1]}, context);
  };
  return {forward, params};
}

// The residual is added after the last matmul has rounded its result, not by the matmul. With dropout, the masks are equal, too,
// because the layers have one position here.
TEST(AttentionBlock, WithAnMlpEqualsABlock) {
  for (const std::string norm : {"layernorm", "rmsnorm", "none"}) {
    for (const double dropout : {0.0, 0.4}) {
      Table options{{"hidden", 6}, {"heads", 2}, {"norm", norm}, {"dropout", dropout}, {"std", 0.5}};
      if (norm != "none") options["eps"] = 0.01;
      const test::Subject block = test::initialised(make_block(options));
      const test::Subject layers = in_three_layers(options, {{"hidden", 6}, {"ffn", 24}, {"std", 0.5}}, dropout);
      test::initialise(layers, 9, at::kDouble);
      const at::Tensor x = at::randn({2, 5, 6}, at::kDouble), cot = at::randn({2, 5, 6}, at::kDouble);
      test::FakeContext one, three;
      const test::Result wanted = test::run(block, {x}, one, cot), got = test::run(layers, {x}, three, cot);
      EXPECT_LE(test::distance(got.out, wanted.out), 1e-15) << norm;
      EXPECT_LE(test::distance(got.input_grads[0], wanted.input_grads[0]), 1e-13) << norm;
      EXPECT_EQ(got.grads.size(), wanted.grads.size());
      for (const auto& [name, gradient] : wanted.grads) EXPECT_LE(test::distance(got.grads.at(name), gradient), 1e-13) << name;
    }
  }
}

TEST(AttentionBlock, OutputsTheNormAndTheResidualStream) {
  const auto layer = make_attention_block(Table{{"hidden", 6}, {"heads", 2}, {"norm", "rmsnorm"}});
  EXPECT_EQ(layer->kind(), "attention_block");
  const Io io = layer->io();
  EXPECT_EQ(io.inputs, (std::vector<std::string>{"h"}));
  ASSERT_EQ(io.outputs.size(), 2U);
  EXPECT_EQ(io.outputs[0].name, "h");
  EXPECT_EQ(io.outputs[1].name, "residual");
  const test::Subject subject = test::initialised(layer);
  test::FakeContext context;
  const auto out = subject.forward({at::randn({1, 3, 6}, at::kDouble)}, context);
  EXPECT_LE(test::distance(out[0], out[1] * (out[1].square().mean(-1, true) + 1e-5).rsqrt()), 1e-14);
}

TEST(AttentionBlock, WorksOnMeta) {
  const test::Subject subject = test::subject(make_attention_block(Table{{"hidden", 6}, {"heads", 2}, {"qk_norm", true}}));
  const at::TensorOptions meta(at::kMeta);
  for (const auto& param : subject.params) test::values_of(*param) = at::empty(param->shape, meta).set_requires_grad(true);
  test::FakeContext context;
  const auto out = subject.forward({at::empty({2, 3, 6}, meta)}, context);
  const auto sum = make_residual(Table{{"dropout", 0.1}})->forward(out, context);
  EXPECT_TRUE(sum[0].is_meta());
  EXPECT_EQ(sum[0].sizes(), (at::IntArrayRef{2, 3, 6}));
}

TEST(Residual, PassesOneGradientToBothInputs) {
  const auto layer = make_residual(Table{});
  EXPECT_EQ(layer->kind(), "residual");
  test::FakeContext context;
  const at::Tensor h = at::randn({2, 3}).set_requires_grad(true), residual = at::randn({2, 3}).set_requires_grad(true);
  const at::Tensor out = layer->forward({h, residual}, context)[0], cot = at::randn({2, 3});
  EXPECT_TRUE(at::equal(out, h + residual));
  const auto grads = torch::autograd::grad({out}, {h, residual}, {cot});
  EXPECT_TRUE(grads[0].is_alias_of(cot) && grads[1].is_alias_of(cot)) << "the gradient is not copied";
}

TEST(Residual, HasTheDtypeOfTheResidualStream) {
  const auto layer = make_residual(Table{{"dropout", 0.5}});
  for (const Mode mode : {Mode::train, Mode::eval}) {
    test::FakeContext context;
    context.mode = mode;
    const at::Tensor h = at::randn({2, 3}).set_requires_grad(true), residual = at::randn({2, 3}).to(at::kBFloat16);
    const at::Tensor out = layer->forward({h, residual}, context)[0];
    EXPECT_EQ(out.scalar_type(), at::kBFloat16);
    EXPECT_EQ(torch::autograd::grad({out}, {h}, {at::ones_like(out)})[0].scalar_type(), at::kFloat);
  }
}

TEST(Residual, RefusesOtherShapesAndWholeNumbers) {
  const auto layer = make_residual(Table{});
  test::FakeContext context;
  const std::string shapes = test::misuse_of([&] { layer->forward({at::zeros({2, 3}), at::zeros({1, 3})}, context); });
  EXPECT_NE(shapes.find("adds floating-point values of one shape, got h float32[2, 3]"), std::string::npos) << shapes;
  EXPECT_NE(shapes.find("and residual float32[1, 3]"), std::string::npos) << shapes;
  const std::string whole = test::misuse_of([&] { layer->forward({at::zeros({2, 3}, at::kLong), at::zeros({2, 3})}, context); });
  EXPECT_NE(whole.find("got h int64[2, 3]"), std::string::npos) << whole;
  EXPECT_NE(test::misuse_of([] { make_residual(Table{{"p", 0.1}}); }).find("nn.residual: unknown option 'p'"), std::string::npos);
}

}  // namespace
}  // namespace zt::nn
