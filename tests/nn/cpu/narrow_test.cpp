// Compares the fused loops on 16-bit numbers, and LayerNorm in all dtypes, with ATen in float64 on the same numbers.
#include "narrow.h"

#include <ATen/Parallel.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <cmath>

#include "layers/layers.h"
#include "parts/activation.h"
#include "parts/rotary.h"
#include "zt/base/rows.h"
#include "zt/base/words.h"
#include "zt/plan/allocation.h"

namespace zt::nn {
namespace {

using Table = Value::Table;
using test::excess;
using torch::autograd::variable_list;

class Narrow : public testing::TestWithParam<at::ScalarType> {
 protected:
  // made_up() returns numbers of the dtype, the same in each run. wide() returns a tensor in float64, as a leaf with a gradient.
  at::Tensor made_up(at::IntArrayRef shape, double factor = 1) const {
    int64_t numel = 1;
    for (const int64_t size : shape) numel *= size;
    return ((at::arange(numel, at::kDouble) * 0.7 + 0.3).sin() * (3 * factor)).view(shape).to(GetParam());
  }
  static at::Tensor wide(const at::Tensor& x) { return x.to(at::kDouble).set_requires_grad(true); }
};

class AllWidths : public Narrow {};

TEST_P(Narrow, Activations) {
  for (const Activation activation : {Activation::gelu, Activation::gelu_tanh, Activation::relu, Activation::swiglu}) {
    const std::string name = word_of(activation);
    const int64_t before = columns_before(activation, 37);
    const at::Tensor pre = made_up({5, before}), bias = made_up({before}, 0.3), dy = made_up({5, 37}, 0.1);
    const at::Tensor x = wide(pre), sum = x + bias.to(at::kDouble);
    const auto halves = [&](int64_t i) { return sum.narrow(1, 37 * i, 37); };
    const at::Tensor exact = name == "relu"     ? at::relu(sum)
                             : name == "swiglu" ? at::silu(halves(0)) * halves(1)
                                                : at::gelu(sum, name == "gelu" ? "none" : "tanh");
    const at::Tensor dx = torch::autograd::grad({exact}, {x}, {dy.to(at::kDouble)})[0];
    // ATen's loops round pre + bias to 16 bits. That adds an error of one rounding of |sum| <= 4 times the largest slope 1.13.
    const double more = name == "gelu" || name == "relu" ? 4 * 1.13 * test::unit_of(GetParam()) : 0;
    const auto scale = [&](const at::Tensor& y) { return y.abs().max().item<double>() + more * 0x1p18; };
    EXPECT_LE(excess(activate(activation, pre, bias), exact.detach(), 1, scale(exact)), 1) << name;
    const ActivationGradient got = activate_backward(activation, dy.clone(), pre, bias);
    EXPECT_LE(excess(got.value, exact.detach(), 1, scale(exact)), 1) << name;
    EXPECT_LE(excess(got.pre, dx, 1, scale(dx)), 1) << name;
  }
}

TEST_P(Narrow, Norms) {
  for (const std::string name : {"layernorm", "layernorm_no_bias", "rmsnorm"}) {
    const int64_t n = 67, rows = 300;  // more than one block of rows
    const auto layer = name == "rmsnorm" ? make_rmsnorm(Table{{"hidden", n}})
                                         : make_layernorm(Table{{"hidden", n}, {"bias", name == "layernorm"}});
    const test::Subject subject = test::subject(layer);
    const at::Tensor x = made_up({3, rows / 3, n}) + 1, dy = made_up({3, rows / 3, n}, 0.1);
    test::Tensors values{{"weight", made_up({n})}};
    if (name == "layernorm") values["bias"] = made_up({n}, 0.5);
    test::set_values(subject, values, GetParam());
    test::SinkContext context(at::kFloat);
    const test::Result got = test::run(subject, {x}, context, dy);

    const at::Tensor wide_x = wide(x), weight = wide(values["weight"]);
    const at::Tensor bias = name == "layernorm" ? wide(values["bias"]) : at::Tensor();
    const at::Tensor y = name == "rmsnorm" ? wide_x * (wide_x.square().mean(-1, true) + 1e-5).rsqrt() * weight
                                           : std::get<0>(at::native_layer_norm(wide_x, {n}, weight, bias, 1e-5));
    variable_list leaves{wide_x, weight};
    if (bias.defined()) leaves.push_back(bias);
    const auto exact = torch::autograd::grad({y}, leaves, {dy.to(at::kDouble)});
    EXPECT_LE(excess(got.out, y.detach()), 1) << name;
    EXPECT_LE(excess(got.input_grads[0], exact[0]), 1) << name;
    // Weight gradients are float32: sums of 300 terms of at most 0.3 * 2.
    EXPECT_EQ(got.grads.at("weight").scalar_type(), at::kFloat);
    EXPECT_LE(excess(got.grads.at("weight"), exact[1], 1, 300 * 0.6), 1) << name;
    if (bias.defined()) {
      EXPECT_LE(excess(got.grads.at("bias"), exact[2], 1, 300 * 0.3), 1);
    }
  }
}

TEST_P(Narrow, CrossEntropy) {
  const at::Tensor logits = made_up({2, 3, 301}, 3), labels = at::tensor({0, 300, -100, 7, 8, 100}, at::kLong).view({2, 3});
  test::FakeContext context;
  context.fields["labels"] = labels;
  const test::Result got = test::run(test::subject(make_cross_entropy(Table{})), {logits}, context);
  const at::Tensor x = wide(logits), loss = at::cross_entropy_loss(x.view({6, 301}), labels.view({6}), {}, at::Reduction::Sum);
  const at::Tensor dx = torch::autograd::grad({loss}, {x})[0];
  EXPECT_EQ(got.loss.scalar_type(), at::kDouble);
  EXPECT_NEAR(got.loss.item<double>(), loss.item<double>(), 6 * 64 * 0x1p-24);
  EXPECT_LE(excess(got.input_grads[0], dx), 1);
}

// For a confident prediction, softmax - 1 is far below the 16-bit rounding error of softmax, and must be accurate anyway.
TEST_P(Narrow, ASmallGradientOfAConfidentPredictionIsKept) {
  const at::Tensor logits = at::tensor({12.0, 0.0, 1.0}, at::kDouble).to(GetParam()).view({1, 1, 3});
  test::FakeContext context;
  context.fields["labels"] = at::zeros({1, 1}, at::kLong);
  const test::Result got = test::run(test::subject(make_cross_entropy(Table{})), {logits}, context);
  const double others = std::exp(-12.0) + std::exp(-11.0), exact = -others / (1 + others);
  EXPECT_NEAR(got.input_grads[0].view({-1})[0].item<double>(), exact, 1.01 * test::unit_of(GetParam()) * -exact + 0x1p-25);
}

TEST_P(Narrow, Rotary) {
  Rotary rotary(10, 100);
  const at::Tensor x = made_up({2, 6, 35}), turned = x.clone();
  const Angles angles = rotary.angles(at::arange(6), GetParam());
  EXPECT_EQ(angles.cosine.scalar_type(), at::kFloat);
  rotate_heads(turned, angles, 3, Turn::forward);
  Rotary exact_rotary(10, 100);
  const at::Tensor exact = x.to(at::kDouble);
  rotate_heads(exact, exact_rotary.angles(at::arange(6), at::kDouble), 3, Turn::forward);
  EXPECT_LE(excess(turned, exact), 1);
  EXPECT_TRUE(at::equal(turned.narrow(2, 30, 5), x.narrow(2, 30, 5)));
}

// Positions may be given per sequence or per token. Angles stay valid when the table grows later.
TEST_P(AllWidths, RotaryAtAnyPositions) {
  Rotary rotary(6, 50);
  const at::Tensor x = made_up({2, 4, 12});
  const Angles early = rotary.angles(at::tensor({1, 0, 2, 2}, at::kLong), GetParam());
  const Angles late = rotary.angles(at::tensor({3, 900, 0, 7, 900, 900, 5, 1}, at::kLong).view({2, 4}), GetParam());
  EXPECT_EQ(rotary.angles(at::arange(4), GetParam()).cosine.data_ptr(), late.cosine.data_ptr());  // the table is reused
  const auto turned_alone = [&](const at::Tensor& token, int64_t position) {
    const at::Tensor row = token.clone().view({1, 1, 12});
    rotate_heads(row, Rotary(6, 50).angles(at::full({1}, position, at::kLong), GetParam()), 2, Turn::forward);
    return row.view({12});
  };
  const auto expect_turned = [&](const Angles& angles, const std::vector<int64_t>& positions) {
    const at::Tensor turned = x.clone();
    rotate_heads(turned, angles, 2, Turn::forward);
    for (int64_t i = 0; i < 8; ++i) {
      EXPECT_TRUE(at::equal(turned.view({8, 12})[i], turned_alone(x.view({8, 12})[i], positions[i]))) << i;
    }
  };
  expect_turned(early, {1, 0, 2, 2, 1, 0, 2, 2});
  expect_turned(late, {3, 900, 0, 7, 900, 900, 5, 1});
  EXPECT_NE(test::misuse_of([&] {
              rotary.angles(at::tensor({0, -1}, at::kLong), GetParam());
            }).find("got -1"),
            std::string::npos);
}

// Different numbers of rows; widths below and above those of vectors and of blocks of partial sums.
TEST_P(AllWidths, NormsOfAllSizes) {
  for (const int64_t n : {1, 2, 15, 16, 17, 31, 33, 100, 255, 257, 600}) {
    for (const int64_t rows : {1, 31, 32, 33, 65}) {
      SCOPED_TRACE(testing::Message() << rows << " rows of " << n);
      const auto subject = test::subject(make_layernorm(Table{{"hidden", n}}));
      const at::Tensor x = made_up({rows, n}), dy = made_up({rows, n}, 0.1);
      const test::Tensors values{{"weight", made_up({n})}, {"bias", made_up({n}, 0.5)}};
      test::set_values(subject, values, GetParam());
      test::SinkContext context(wide_dtype(GetParam()));
      const test::Result got = test::run(subject, {x}, context, dy);
      const at::Tensor wide_x = wide(x), weight = wide(values.at("weight")), bias = wide(values.at("bias"));
      const at::Tensor y = std::get<0>(at::native_layer_norm(wide_x, {n}, weight, bias, 1e-5));
      const auto exact = torch::autograd::grad({y}, {wide_x, weight, bias}, {dy.to(at::kDouble)});
      // The two numbers of a row of two may be so close that 1 / deviation is large, up to steep / 3. The mean of numbers up to 3
      // has an error of 3 units, so the deviation has a relative error of `steep` units. It enters the gradient of x in the third
      // power.
      const double steep = ((wide_x - wide_x.mean(-1, true)).square().mean(-1) + 1e-5).rsqrt().max().item<double>() * 3;
      EXPECT_LE(excess(got.out, y.detach(), 1, steep), 1);
      EXPECT_LE(excess(got.input_grads[0], exact[0], 1, steep * (1 + 3 * steep / 64)), 1);
      EXPECT_LE(excess(got.grads.at("weight"), exact[1], 1, 0.3 * static_cast<double>(rows) * steep), 1);
      EXPECT_LE(excess(got.grads.at("bias"), exact[2], 1, 0.3 * static_cast<double>(rows)), 1);
    }
  }
}

TEST_P(Narrow, Dropout) {
  const auto subject = test::subject(make_dropout(Table{{"p", 0.3}}));
  const at::Tensor x = made_up({4, 51}), dy = made_up({4, 51}, 0.1);
  test::FakeContext context;
  const test::Result got = test::run(subject, {x}, context, dy);
  const test::Result exact = test::run(subject, {x.to(at::kDouble)}, context, dy.to(at::kDouble));
  EXPECT_LE(excess(got.out, exact.out), 1);
  EXPECT_LE(excess(got.input_grads[0], exact.input_grads[0]), 1);
}

// 600 uses of one token. If they were summed in 16 bits, later terms would be lost.
TEST_P(Narrow, AnEmbeddingAddsIntoASinkOfEitherWidth) {
  for (const at::ScalarType sinks : {at::kFloat, GetParam()}) {
    const test::Subject subject = test::subject(make_embedding(Table{{"vocab", 5}, {"hidden", 300}, {"positions", 700}}));
    test::initialise(subject, 3, GetParam());
    test::SinkContext context(sinks);
    const at::Tensor tokens = at::full({2, 300}, 3, at::kLong);
    tokens.select(1, 7).fill_(1);
    context.fields["tokens"] = tokens;
    const at::Tensor dy = made_up({2, 300, 300}, 0.01) + 0.1;
    const test::Result got = test::run(subject, {}, context, dy);
    const at::Tensor table = test::values_of(*subject.params[0]).detach().to(at::kDouble);
    const at::Tensor places = test::values_of(*subject.params[1]).detach().to(at::kDouble);
    EXPECT_LE(excess(got.out, table.index_select(0, tokens.view({-1})).view_as(dy) + places.narrow(0, 0, 300)), 1);
    const at::Tensor exact = at::zeros({5, 300}, at::kDouble);
    exact.index_add_(0, tokens.view({-1}), dy.to(at::kDouble).view({600, 300}));
    EXPECT_EQ(got.grads.at("weight").scalar_type(), sinks);
    // A sequential sum of 598 positive terms has a relative error of at most 598 * 2^-24: ten times the bound of excess().
    EXPECT_LE(excess(got.grads.at("weight"), exact, 1, 10 * exact.max().item<double>()), 1);
    EXPECT_LE(excess(got.grads.at("positions").narrow(0, 0, 300), dy.to(at::kDouble).sum(0)), 1);
  }
}

// The backward adds to the gradient of the table in place. It allocates nothing as large as the table.
TEST_P(Narrow, AnEmbeddingsBackwardAllocatesNoTable) {
  const test::Subject subject = test::subject(make_embedding(Table{{"vocab", 5000}, {"hidden", 64}}));
  test::initialise(subject, 3, GetParam());
  test::SinkContext context(at::kFloat);
  context.fields["tokens"] = at::tensor({4999, 0, 4999}, at::kLong).view({1, 3});
  const at::Tensor dy = made_up({1, 3, 64});
  test::run(subject, {}, context, dy);
  const at::Tensor out = subject.forward({}, context)[0];
  AllocationWatch watch;
  {
    const AllocationWatch::Scope scope(watch);
    torch::autograd::grad({out}, {test::values_of(*subject.params[0])}, {dy}, false, false, true);
  }
  EXPECT_LT(watch.peak_bytes(), 5000 * 64);
  const at::Tensor exact = at::zeros({5000, 64}, at::kDouble);
  exact.index_add_(0, context.fields["tokens"].view({-1}), 2 * dy.to(at::kDouble).view({3, 64}));
  EXPECT_LE(excess(context.sunk.at(subject.params[0].get()), exact), 1);
}

INSTANTIATE_TEST_SUITE_P(Nn, Narrow, testing::Values(at::kBFloat16, at::kHalf),
                         [](const auto& info) { return std::string(c10::toString(info.param)); });

INSTANTIATE_TEST_SUITE_P(Nn, AllWidths, testing::Values(at::kBFloat16, at::kHalf, at::kFloat, at::kDouble),
                         [](const auto& info) { return std::string(c10::toString(info.param)); });

// --- LayerNorm in float32 and float64 ---

// With a mean far from zero, the variance must be computed from differences, not as a difference of squares. If x is up to
// `reach` deviations from zero, the error of the mean and of each result is about 32 * 2^-24 * reach.
TEST(LayerNorm, MatchesAtenWithALargeMean) {
  for (const double mean : {0.0, 100.0}) {
    for (const at::ScalarType dtype : {at::kFloat, at::kDouble}) {
      const double eps = dtype == at::kFloat ? 0x1p-24 : 0x1p-53;
      const int64_t n = 700;
      const at::Tensor x = (at::randn({20, n}, at::kDouble) + mean).to(dtype), dy = at::randn({20, n}, at::kDouble).to(dtype);
      const auto subject = test::initialised(make_layernorm(Table{{"hidden", n}}), dtype);
      test::FakeContext context;
      const test::Result got = test::run(subject, {x}, context, dy);
      const at::Tensor wide = x.to(at::kDouble).set_requires_grad(true), one = at::ones({n}, at::kDouble);
      const at::Tensor y = std::get<0>(at::native_layer_norm(wide, {n}, one, at::zeros_like(one), 1e-5));
      const at::Tensor dx = torch::autograd::grad({y}, {wide}, {dy.to(at::kDouble)})[0];
      const double bound = 32 * eps * (mean + 5);
      EXPECT_LE((got.out - y).abs().max().item<double>(), bound);
      EXPECT_LE((got.input_grads[0] - dx).abs().max().item<double>(), 5 * bound);  // |dy| and |y| reach 5
    }
  }
}

TEST(LayerNorm, GradientsDoNotDependOnThreads) {
  const auto subject = test::initialised(make_layernorm(Table{{"hidden", 700}}), at::kFloat);
  const int threads = at::get_num_threads();
  for (const int64_t rows : {1, 33, 200, 2000}) {
    const at::Tensor x = at::randn({rows, 700}), dy = at::randn({rows, 700});
    at::set_num_threads(1);
    test::FakeContext one;
    const test::Result alone = test::run(subject, {x}, one, dy);
    for (const int count : {2, 3}) {
      at::set_num_threads(count);
      test::FakeContext more;
      const test::Result together = test::run(subject, {x}, more, dy);
      EXPECT_TRUE(at::equal(alone.input_grads[0], together.input_grads[0])) << rows;
      for (const std::string name : {"weight", "bias"}) {
        EXPECT_TRUE(at::equal(alone.grads.at(name), together.grads.at(name))) << rows << " rows, " << name;
      }
    }
  }
  at::set_num_threads(threads);
}

}  // namespace
}  // namespace zt::nn
