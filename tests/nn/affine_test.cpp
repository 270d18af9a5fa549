// The product with weights: its forms, dtypes, and planning on meta tensors.
#include "affine.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "layers.h"
#include "nn/run.h"
#include "zt/gemm.h"

namespace zt::nn {
namespace {

at::Tensor random(at::IntArrayRef shape, at::ScalarType dtype) {
  return at::randn(shape, at::kDouble).to(dtype);
}

// A sum of 7 products and two more terms, each rounding at most unit.
TEST(Affine, AddsBiasAndResidual) {
  for (const auto& [dtype, unit] :
       {std::pair(at::kDouble, 0x1p-53), std::pair(at::kFloat, 0x1p-24), std::pair(at::kBFloat16, 0x1p-8)}) {
    const at::Tensor x = random({5, 7}, dtype), weight = random({3, 7}, dtype), bias = random({3}, dtype);
    const at::Tensor residual = random({5, 3}, dtype), kept = residual.clone();
    for (const bool has_bias : {false, true}) {
      for (const bool has_residual : {false, true}) {
        const at::Tensor y = affine_rows(x, weight, has_bias ? bias : at::Tensor(), has_residual ? residual : at::Tensor());
        at::Tensor exact = x.to(at::kDouble).mm(weight.to(at::kDouble).t());
        at::Tensor sizes = x.to(at::kDouble).abs().mm(weight.to(at::kDouble).abs().t());
        if (has_bias) exact += bias, sizes += bias.abs();
        if (has_residual) exact += residual, sizes += residual.abs();
        EXPECT_EQ(y.scalar_type(), dtype);
        EXPECT_TRUE(((y.to(at::kDouble) - exact).abs() <= sizes * (10 * unit)).all().item<bool>());
      }
    }
    EXPECT_TRUE(residual.equal(kept));
  }
}

TEST(Affine, InputGradientIsTheTransposedProduct) {
  const at::Tensor dy = random({5, 3}, at::kDouble), weight = random({3, 7}, at::kDouble);
  EXPECT_LE(test::distance(affine_input_gradient(dy, weight), dy.mm(weight)), 4 * 0x1p-53);
  const at::Tensor broadcast = at::ones({1, 3}, at::kDouble).expand({5, 3});
  EXPECT_LE(test::distance(affine_input_gradient(broadcast, weight), broadcast.mm(weight)), 4 * 0x1p-53);
}

TEST(Affine, PlansOnMetaTensors) {
  const auto on_meta = [](at::IntArrayRef shape) { return at::empty(shape, at::TensorOptions(at::kMeta).dtype(at::kBFloat16)); };
  const GemmRecorder recorder;
  const at::Tensor x = on_meta({5, 7}), weight = on_meta({3, 7});
  const at::Tensor y = affine_rows(x, weight, on_meta({3}), on_meta({5, 3}));
  const at::Tensor dx = affine_input_gradient(y, weight);
  EXPECT_TRUE(y.is_meta() && dx.is_meta());
  EXPECT_EQ(y.sizes(), (std::vector<int64_t>{5, 3}));
  EXPECT_EQ(dx.sizes(), (std::vector<int64_t>{5, 7}));
  EXPECT_EQ(y.scalar_type(), at::kBFloat16);
  const std::vector<GemmShape> wanted{{GemmKind::forward, at::kBFloat16, 5, 3, 7},
                                      {GemmKind::input_gradient, at::kBFloat16, 5, 7, 3}};
  EXPECT_EQ(recorder.shapes(), wanted);
}

TEST(Linear, ConvertsAnInputOfAnotherFloatingDtype) {
  const test::Subject subject = test::initialised(make_linear(Value::Table{{"in", 4}, {"out", 3}}));
  const at::Tensor x = random({2, 4}, at::kFloat), cot = random({2, 3}, at::kDouble);
  test::FakeContext context, wide_context;
  const test::Result got = test::run(subject, {x}, context, cot),
                     wide = test::run(subject, {x.to(at::kDouble)}, wide_context, cot);
  EXPECT_EQ(got.out.scalar_type(), at::kDouble);
  EXPECT_TRUE(got.out.equal(wide.out));
  EXPECT_EQ(got.input_grads[0].scalar_type(), at::kFloat);
  EXPECT_TRUE(got.input_grads[0].equal(wide.input_grads[0].to(at::kFloat)));
  EXPECT_TRUE(got.grads.at("weight").equal(wide.grads.at("weight")));
}

TEST(Linear, RefusesWholeNumbers) {
  const test::Subject subject = test::initialised(make_linear(Value::Table{{"in", 4}, {"out", 3}}));
  test::FakeContext context;
  const std::string said = test::misuse_of([&] { subject.forward({at::ones({2, 4}, at::kLong)}, context); });
  EXPECT_NE(said.find("'weight' multiplies floating-point values, got int64[2, 4]"), std::string::npos) << said;
}

}  // namespace
}  // namespace zt::nn
