// Compares the row algorithms of the CUDA kernels, emulated on the CPU, with ATen in float64 on the same numbers.
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <cmath>
#include <limits>

#include "cuda/device_activation.h"
#include "cuda/device_norm.h"
#include "cuda/device_softmax.h"
#include "cuda_bounds.h"
#include "cuda_team.h"
#include "zt/base/rows.h"

namespace zt::nn {
namespace {

using test::emulate;
using test::some;
using test::times_allowed;
using test::wide_leaf;
using torch::autograd::grad;

constexpr int64_t kWidths[] = {1, 3, 7, 8, 33, 64, 257, 1030};

class CudaMaths : public testing::TestWithParam<at::ScalarType> {
 protected:
  at::Tensor made_up(at::IntArrayRef shape, double factor = 1) const { return some(shape, GetParam(), factor); }
  at::ScalarType wide() const { return wide_dtype(GetParam()); }
};

TEST_P(CudaMaths, GeluTanh) {
  for (const int64_t width : kWidths) {
    for (const bool has_bias : {true, false}) {
      const at::Tensor pre = made_up({3, width}, 1.5), dy = made_up({3, width}, 0.1);
      const at::Tensor bias = has_bias ? made_up({width}, 0.3) : at::Tensor();
      const at::Tensor x = wide_leaf(pre), y = at::gelu(has_bias ? x + bias.to(at::kDouble) : x, "tanh");
      const at::Tensor dx = grad({y}, {x}, {dy.to(at::kDouble)})[0];
      const at::Tensor out = at::empty_like(pre), got = dy.clone(), again = at::empty_like(pre);
      for_dtype(pre, [&](auto zero) {
        using T = decltype(zero);
        const T *in = pre.const_data_ptr<T>(), *b = data_or_null<T>(bias);
        emulate(device::GeluTanh<T>{out.data_ptr<T>(), in, b, 3, width});
        emulate(device::GeluTanhBackward<T>{got.data_ptr<T>(), again.data_ptr<T>(), in, b, 3, width});
      });
      EXPECT_LE(times_allowed(out, y.detach()), 1) << width;
      EXPECT_LE(times_allowed(got, dx, 64, 0.3 * 1.13), 1) << width;  // |dy| times the largest slope
      EXPECT_TRUE(at::equal(again, out)) << width;
    }
  }
}

TEST_P(CudaMaths, Swiglu) {
  for (const int64_t width : kWidths) {
    for (const bool has_bias : {true, false}) {
      const at::Tensor pre = made_up({3, 2 * width}), dy = made_up({3, width}, 0.1);
      const at::Tensor bias = has_bias ? made_up({2 * width}, 0.3) : at::Tensor();
      const at::Tensor x = wide_leaf(pre), sum = has_bias ? x + bias.to(at::kDouble) : x;
      const at::Tensor y = at::silu(sum.narrow(1, 0, width)) * sum.narrow(1, width, width);
      const at::Tensor dx = grad({y}, {x}, {dy.to(at::kDouble)})[0];
      const at::Tensor out = at::empty_like(dy), got = at::empty_like(pre), again = at::empty_like(dy);
      for_dtype(pre, [&](auto zero) {
        using T = decltype(zero);
        const T *in = pre.const_data_ptr<T>(), *b = data_or_null<T>(bias);
        emulate(device::Swiglu<T>{out.data_ptr<T>(), in, b, 3, width});
        emulate(device::SwigluBackward<T>{got.data_ptr<T>(), again.data_ptr<T>(), dy.const_data_ptr<T>(), in, b, 3, width});
      });
      EXPECT_LE(times_allowed(out, y.detach(), 64, 4 * 4), 1) << width;
      EXPECT_LE(times_allowed(got, dx, 64, 0.3 * 4 * 1.1), 1) << width;  // |dy|, |up| and the largest slope of silu
      EXPECT_TRUE(at::equal(again, out)) << width;
    }
  }
}

// --- norms ---

struct NormCase {
  bool is_layernorm, has_bias;
};

// Returns the results of the kernels for one case: out, dx, dweight, dbias.
template <class T>
std::vector<at::Tensor> emulated_norm(NormCase kind, const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                                      const at::Tensor& dy, const at::Tensor& beside) {
  using W = kernels::Wide<T>;
  const int64_t rows = x.size(0), width = x.size(1), blocks = device::sum_blocks(rows);
  const auto wide = x.options().dtype(wide_dtype(x.scalar_type()));
  const at::Tensor out = at::empty_like(x), dx = at::empty_like(x), mean = at::empty({rows}, wide),
                   reciprocal = at::empty({rows}, wide);
  at::Tensor dweight = at::empty({blocks, width}, wide), dbias = at::empty({blocks, width}, wide);
  W* means = kind.is_layernorm ? mean.data_ptr<W>() : nullptr;
  const T *in = x.const_data_ptr<T>(), *w = weight.const_data_ptr<T>(), *g = dy.const_data_ptr<T>();
  emulate(device::NormForward<T>{
      out.data_ptr<T>(), {means, reciprocal.data_ptr<W>()}, in, w, data_or_null<T>(bias), 1e-5, rows, width});
  const kernels::NormStats<const W> stats{means, reciprocal.data_ptr<W>()};
  emulate(device::NormBackward<T>{dx.data_ptr<T>(), g, in, w, data_or_null<T>(beside), stats, rows, width});
  emulate(device::NormParts<T>{dweight.data_ptr<W>(), kind.has_bias ? dbias.data_ptr<W>() : nullptr, g, in, stats, rows, blocks,
                               width});
  for (at::Tensor* sums : {&dweight, &dbias}) {
    while (sums->size(0) > 1) {
      const at::Tensor next = at::empty({device::sum_blocks(sums->size(0)), width}, wide);
      emulate(device::SumRows<W>{next.data_ptr<W>(), sums->const_data_ptr<W>(), sums->size(0), next.size(0), width});
      *sums = next;
    }
  }
  return {out, dx, dweight[0], dbias[0]};
}

std::vector<at::Tensor> emulated_norm_of(NormCase kind, const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                                         const at::Tensor& dy, const at::Tensor& beside) {
  std::vector<at::Tensor> results;
  for_dtype(x, [&](auto zero) { results = emulated_norm<decltype(zero)>(kind, x, weight, bias, dy, beside); });
  return results;
}

TEST_P(CudaMaths, Norms) {
  for (const NormCase kind : {NormCase{true, true}, NormCase{true, false}, NormCase{false, false}}) {
    for (const int64_t width : {1, 7, 64, 257}) {
      for (const int64_t rows : {1, 100, 1100}) {  // one, two and three levels of sums
        const at::Tensor x = made_up({rows, width}) + 1, dy = made_up({rows, width}, 0.1), weight = made_up({width});
        const at::Tensor bias = kind.has_bias ? made_up({width}, 0.5) : at::Tensor();
        const at::Tensor beside = rows != 100 ? made_up({rows, width}, 0.2) : at::Tensor();
        const auto got = emulated_norm_of(kind, x, weight, bias, dy, beside);
        const at::Tensor v = wide_leaf(x), w = wide_leaf(weight), b = kind.has_bias ? wide_leaf(bias) : at::Tensor();
        const at::Tensor y = kind.is_layernorm ? at::layer_norm(v, {width}, w, b, 1e-5) : at::rms_norm(v, {width}, w, 1e-5);
        const auto exact = grad({y}, {v, w}, {dy.to(at::kDouble)});
        // For a row of (nearly) equal numbers, 1 / deviation is up to 316. Numbers are up to 4, weights up to 3 and dy up to 0.3.
        const double steep = width == 1 ? 316.3 : 8, h = kind.is_layernorm && width == 1 ? 4 : 3;
        EXPECT_LE(times_allowed(got[0], y.detach(), 64, width == 1 ? 4 * steep * 3 : 12), 1) << width << " " << rows;
        const at::Tensor dx = beside.defined() ? exact[0] + beside : exact[0];
        EXPECT_LE(times_allowed(got[1], dx, 64, 0.3 * 3 * steep), 1) << width << " " << rows;
        // Sums of 32 rows, then of 32 blocks, then of the rest: fewer than 80 additions per sum.
        EXPECT_LE(times_allowed(got[2], exact[1], 80, 0.3 * h * static_cast<double>(rows)), 1) << width << " " << rows;
        if (kind.has_bias) {
          const at::Tensor sum = dy.to(at::kDouble).sum(0);
          EXPECT_LE(times_allowed(got[3], sum, 80, 0.3 * static_cast<double>(rows)), 1) << width << " " << rows;
        }
      }
    }
  }
}

// The bits do not depend on the alignment of the rows: the order of sums does not depend on whether packs are loaded at once.
TEST_P(CudaMaths, AlignmentDoesNotChangeNorms) {
  const int64_t rows = 40, width = 1032;
  const auto moved = [&](const at::Tensor& x) {
    const at::Tensor space = at::empty({x.numel() + 1}, x.options());
    return space.narrow(0, 1, x.numel()).view(x.sizes()).copy_(x);
  };
  const at::Tensor x = made_up({rows, width}), dy = made_up({rows, width}, 0.1), weight = made_up({width}),
                   bias = made_up({width});
  const auto expected = emulated_norm_of({true, true}, x, weight, bias, dy, dy);
  const auto got = emulated_norm_of({true, true}, moved(x), moved(weight), moved(bias), moved(dy), moved(dy));
  for (size_t i = 0; i < expected.size(); ++i) EXPECT_TRUE(at::equal(got[i], expected[i])) << i;
}

// Vectors within the rows of a matrix give the bits of the same vectors in a matrix of their own.
TEST_P(CudaMaths, NormsOfPartsOfRows) {
  const int64_t rows = 13, columns = 61, width = 12, count = 3, first = 5, vectors = rows * count;
  const at::Tensor x = made_up({rows, columns}), dy = made_up({rows, columns}, 0.1), weight = made_up({width});
  const auto part_of = [&](const at::Tensor& all) { return all.narrow(1, first, count * width).reshape({vectors, width}); };
  const auto expected = emulated_norm_of({false, false}, part_of(x), weight, {}, part_of(dy), {});
  const at::Tensor out = at::full_like(x, 7), dx = at::full_like(x, 7);
  const auto wide_options = x.options().dtype(wide());
  const at::Tensor reciprocal = at::empty({vectors}, wide_options), sums = at::empty({2, width}, wide_options),
                   dweight = at::empty({1, width}, wide_options);
  const device::RowPlaces places{count, columns};
  for_dtype(x, [&](auto zero) {
    using T = decltype(zero);
    using W = kernels::Wide<T>;
    W* scale = reciprocal.data_ptr<W>();
    const T *in = x.const_data_ptr<T>() + first, *grad_in = dy.const_data_ptr<T>() + first, *w = weight.const_data_ptr<T>();
    emulate(device::NormForward<T>{out.data_ptr<T>() + first, {nullptr, scale}, in, w, nullptr, 1e-5, vectors, width, places});
    const kernels::NormStats<const W> stats{nullptr, scale};
    emulate(device::NormBackward<T>{dx.data_ptr<T>() + first, grad_in, in, w, nullptr, stats, vectors, width, places});
    emulate(device::NormParts<T>{sums.data_ptr<W>(), nullptr, grad_in, in, stats, vectors, 2, width, places});
    emulate(device::SumRows<W>{dweight.data_ptr<W>(), sums.const_data_ptr<W>(), 2, 1, width});
  });
  EXPECT_TRUE(at::equal(part_of(out), expected[0]));
  EXPECT_TRUE(at::equal(part_of(dx), expected[1]));
  EXPECT_TRUE(at::equal(dweight[0], expected[2]));
  EXPECT_TRUE(out.narrow(1, 0, first).eq(7).all().item<bool>()) << "other columns are left alone";
}

// --- cross-entropy ---

struct LossResult {
  double sum = 0;
  at::Tensor gradient;
};

// Computes the loss and its gradient in place, as lm_loss does.
LossResult emulated_loss(const at::Tensor& logits, const at::Tensor& label, double scale, int64_t lanes = 0) {
  const int64_t rows = logits.size(0), width = logits.size(1);
  LossResult result{0, logits.clone()};
  std::vector<double> losses(static_cast<size_t>(rows));
  std::vector<kernels::RowStats> stats(static_cast<size_t>(rows));
  for_dtype(logits, [&](auto zero) {
    using T = decltype(zero);
    const device::Labels labels{label.const_data_ptr<int64_t>(), -100};
    T* x = result.gradient.data_ptr<T>();
    emulate(device::SoftmaxLosses<T>{losses.data(), stats.data(), x, labels, rows, width}, lanes);
    emulate(device::SoftmaxGradient<T>{x, x, stats.data(), &scale, labels, rows, width}, lanes);
  });
  emulate(device::SumAll{&result.sum, losses.data(), 1, rows});
  return result;
}

LossResult exact_loss(const at::Tensor& logits, const at::Tensor& label, double scale) {
  const at::Tensor x = wide_leaf(logits), loss = at::cross_entropy_loss(x, label, {}, at::Reduction::Sum);
  return {loss.item<double>(), grad({loss * scale}, {x})[0]};
}

TEST_P(CudaMaths, CrossEntropy) {
  const double eps = GetParam() == at::kDouble ? 0x1p-53 : 0x1p-24;
  for (const int64_t width : {2, 8, 33, 301, 4099}) {
    const at::Tensor logits = made_up({5, width}, 3);
    const at::Tensor label = at::tensor({int64_t{0}, width - 1, int64_t{-100}, width / 2, int64_t{1}}, at::kLong);
    const LossResult got = emulated_loss(logits, label, 0.7), exact = exact_loss(logits, label, 0.7);
    EXPECT_NEAR(got.sum, exact.sum, 5 * 64 * eps * (1 + std::fabs(exact.sum) * (GetParam() == at::kDouble ? 1 : 0))) << width;
    EXPECT_LE(times_allowed(got.gradient, exact.gradient), 1) << width;
    EXPECT_TRUE(got.gradient[2].eq(0).all().item<bool>());
  }
}

// Each pack has a larger element than the packs before it. So a lane scales its sum down once per pack, which adds two roundings.
TEST_P(CudaMaths, CrossEntropyOfAscendingLogits) {
  const double eps = GetParam() == at::kDouble ? 0x1p-53 : 0x1p-24;
  const at::Tensor logits = (at::arange(4000, at::kDouble) / 400).to(GetParam()).view({1, 4000}),
                   label = at::zeros({1}, at::kLong);
  const LossResult got = emulated_loss(logits, label, 1, 32), exact = exact_loss(logits, label, 1);
  EXPECT_NEAR(got.sum, exact.sum, (64 + 2 * 4000 / 2 / 32) * eps * (GetParam() == at::kDouble ? exact.sum : 1));
  EXPECT_LE(times_allowed(got.gradient, exact.gradient, 256), 1);
}

TEST_P(CudaMaths, CrossEntropyOfMaskedAndUnlikelyClasses) {
  const at::Tensor masked = made_up({1, 100});
  masked.narrow(1, 0, 64).fill_(-std::numeric_limits<double>::infinity());
  const at::Tensor label = at::tensor({70}, at::kLong);
  EXPECT_LE(times_allowed(emulated_loss(masked, label, 1).gradient, exact_loss(masked, label, 1).gradient), 1);

  // softmax - 1 is far below the rounding error of softmax, and must be accurate anyway.
  const at::Tensor sure = at::tensor({12.0, 0.0, 1.0}, at::kDouble).to(GetParam()).view({1, 3});
  const double others = std::exp(-12.0) + std::exp(-11.0), exact = -others / (1 + others);
  const double got = emulated_loss(sure, at::zeros({1}, at::kLong), 1).gradient[0][0].item<double>();
  EXPECT_NEAR(got, exact, 1.01 * test::unit_of(GetParam()) * -exact + (GetParam() == at::kHalf ? 0x1p-25 : 4 * 0x1p-24 * -exact));
}

INSTANTIATE_TEST_SUITE_P(Nn, CudaMaths, testing::Values(at::kDouble, at::kFloat, at::kBFloat16, at::kHalf), test::dtype_of);

}  // namespace
}  // namespace zt::nn
