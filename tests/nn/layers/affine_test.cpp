// Tests affine: bias and residual, dtypes, gradients, and shapes on meta tensors.
#include "parts/affine.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <limits>

#include "layers/layers.h"
#include "nn/support/run.h"
#include "zt/base/tensor.h"

namespace zt::nn {
namespace {

at::Tensor random(at::IntArrayRef shape, at::ScalarType dtype) {
  return at::randn(shape, at::kDouble).to(dtype);
}

// The result is a sum of 7 products and two more terms. Each rounding has a relative error of at most `unit`.
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

TEST(Affine, InputGradientIsDyTimesTheWeight) {
  const at::Tensor dy = random({5, 3}, at::kDouble), weight = random({3, 7}, at::kDouble);
  EXPECT_LE(test::distance(affine_input_gradient(dy, weight), dy.mm(weight)), 4 * 0x1p-53);
  const at::Tensor broadcast = at::ones({1, 3}, at::kDouble).expand({5, 3});
  EXPECT_LE(test::distance(affine_input_gradient(broadcast, weight), broadcast.mm(weight)), 4 * 0x1p-53);
}

TEST(Affine, ComputesShapesOfMetaTensors) {
  const auto on_meta = [](at::IntArrayRef shape) { return at::empty(shape, at::TensorOptions(at::kMeta).dtype(at::kBFloat16)); };
  const at::Tensor x = on_meta({5, 7}), weight = on_meta({3, 7});
  const at::Tensor y = affine_rows(x, weight, on_meta({3}), on_meta({5, 3}));
  const at::Tensor dx = affine_input_gradient(y, weight);
  EXPECT_TRUE(y.is_meta() && dx.is_meta());
  EXPECT_EQ(y.sizes(), (std::vector<int64_t>{5, 3}));
  EXPECT_EQ(dx.sizes(), (std::vector<int64_t>{5, 7}));
  EXPECT_EQ(y.scalar_type(), at::kBFloat16);
}

// A context whose gradient sinks have a given dtype.
class SinksOf : public test::FakeContext {
 public:
  explicit SinksOf(at::ScalarType dtype) : dtype_(dtype) {}
  SinkFn grad_sink(const Param& param) override {
    return [this, &param]() -> Sink {
      const auto [entry, first] = sunk.try_emplace(&param);
      if (first) entry->second = at::full(param.shape, std::numeric_limits<double>::quiet_NaN(), dtype_);
      return {entry->second, first};
    };
  }

 private:
  at::ScalarType dtype_;
};

double unit_of(at::ScalarType dtype) {
  if (dtype == at::kDouble) return 0x1p-53;
  return dtype == at::kFloat ? 0x1p-24 : dtype == at::kHalf ? 0x1p-11 : 0x1p-8;
}

// Checks two micro-batches. Each gradient is a sum over the rows in fp32 (fp64 for fp64), rounded to the sink's dtype; so is the
// sum of both. If the sink has the layer's own 16-bit dtype, a GEMM may round its result before adding it. The factor 2 covers
// terms of second order.
void check_sinks(at::ScalarType layer, at::ScalarType sink) {
  SCOPED_TRACE(fmt::format("{} into {}", dtype_name(layer), dtype_name(sink)));
  constexpr int64_t kRows = 301;
  const Affine affine = make_affine("", 7, 3, Bias::yes, init_zeros());
  for (const auto& param : affine.params()) test::values_of(*param) = at::zeros(param->shape, layer);
  SinksOf context(sink);
  const AffineGradient gradient(affine, affine.values(context, {}, {}), context);
  // The bias is treated as the weight of an input that is always 1.
  at::Tensor exact = at::zeros({3, 8}, at::kDouble), bound = exact.clone();
  for (int micro_batch = 0; micro_batch < 2; ++micro_batch) {
    const at::Tensor dy = random({kRows, 3}, layer), x = random({kRows, 7}, layer);
    gradient.add(dy, x);
    const at::Tensor rows = at::cat({x.to(at::kDouble), at::ones({kRows, 1}, at::kDouble)}, 1), columns = dy.to(at::kDouble).t();
    const at::Tensor product = columns.mm(rows);
    exact += product;
    bound += columns.abs().mm(rows.abs()) * (2 * (kRows + 3) * unit_of(layer == at::kDouble ? at::kDouble : at::kFloat)) +
             (product.abs() + exact.abs()) * (2 * unit_of(sink));
  }
  const at::Tensor &weight = context.sunk.at(affine.weight.get()), &bias = context.sunk.at(affine.bias.get());
  EXPECT_EQ(weight.scalar_type(), sink);
  const at::Tensor got = at::cat({weight, bias.unsqueeze(1)}, 1).to(at::kDouble);
  EXPECT_TRUE(((got - exact).abs() - bound).le(0).all().item<bool>());
}

TEST(AffineGradient, GoesIntoSinksOfEveryDtype) {
  for (const at::ScalarType layer : {at::kFloat, at::kDouble, at::kBFloat16, at::kHalf}) {
    for (const at::ScalarType sink : {at::kFloat, at::kDouble, at::kBFloat16, at::kHalf}) check_sinks(layer, sink);
  }
}

// Groups without rows get a gradient of zeros, and a sink that has a sum keeps it.
TEST(Affine, AddsTheBiasOfEachGroup) {
  const auto bias = make_param("bias", {3, 4}, init_zeros(), false, {});
  const at::Tensor values = random({3, 4}, at::kDouble), x = random({5, 4}, at::kDouble), cot = random({5, 4}, at::kDouble);
  const test::Subject subject{[&](at::TensorList in, Context& context) {
                                return std::vector{add_group_bias(in[0], bias, {2, 0, 3}, context)};
                              },
                              {bias}};
  test::values_of(*bias) = values.clone().requires_grad_(true);
  test::FakeContext context;
  const test::Result result = test::run(subject, {x}, context, cot);
  const at::Tensor wanted = at::stack({cot.narrow(0, 0, 2).sum(0), at::zeros({4}, at::kDouble), cot.narrow(0, 2, 3).sum(0)});
  EXPECT_TRUE(result.out.equal(at::cat({x.narrow(0, 0, 2) + values[0], x.narrow(0, 2, 3) + values[2]})));
  EXPECT_TRUE(result.grads.at("bias").equal(wanted));
  EXPECT_TRUE(result.input_grads[0].equal(cot));
  EXPECT_TRUE(test::run(subject, {x}, context, cot).grads.at("bias").equal(wanted + wanted));
  EXPECT_TRUE(add_group_bias(x, nullptr, {2, 0, 3}, context).is_same(x));
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
