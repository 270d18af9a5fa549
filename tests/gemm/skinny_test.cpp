// Tests the provider "skinny": its results against fp64 within the theoretical bound, and the bits that it guarantees.
#include "skinny.h"

#include <ATen/ATen.h>
#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>
#include <random>

#include "providers.h"
#include "support/gemm_products.h"
#include "zt/base/tensor.h"

namespace zt::test {
namespace {

constexpr std::array kKinds{GemmKind::forward, GemmKind::input_gradient, GemmKind::weight_gradient};
constexpr std::array kDtypes{at::kFloat, at::kBFloat16, at::kHalf};

double unit_roundoff(at::ScalarType dtype) {
  return dtype == at::kFloat ? 0x1p-24 : dtype == at::kBFloat16 ? 0x1p-8 : 0x1p-11;
}

// Returns a random matrix [rows, columns]; its rows are columns + gap elements apart.
at::Tensor matrix(int64_t rows, int64_t columns, int64_t gap, at::ScalarType dtype) {
  return at::randn({rows, columns + gap}, at::kFloat).to(dtype).narrow(1, gap / 2, columns);
}

// Operands with the layouts of a layer: x and dy [rows, columns], W [out, in].
struct Operands {
  at::Tensor a, b;

  Operands(const GemmShape& s, int64_t gap)
      : a(s.kind == GemmKind::weight_gradient ? matrix(s.k, s.m, gap, s.dtype).t() : matrix(s.m, s.k, gap, s.dtype)),
        b(s.kind == GemmKind::forward ? matrix(s.n, s.k, gap, s.dtype).t() : matrix(s.k, s.n, gap, s.dtype)) {}

  at::Tensor product(Isa isa = best_isa()) const {
    const at::Tensor c = at::full({a.size(0), b.size(1)}, std::numeric_limits<float>::quiet_NaN());
    make_skinny_gemm(isa)->run(a, b, c, 0, 1);
    return c;
  }
};

// Compares a GEMM with fp64. The bound is that of a sum of k products in any order, the multiplication by alpha and the addition
// of beta c, plus one rounding to c's dtype.
void check(const GemmShape& shape, int64_t gap, at::ScalarType out, double alpha, double beta) {
  SCOPED_TRACE(fmt::format("kind {}, {} x {} x {}, gap {}, {} to {}, alpha {}, beta {}", static_cast<int>(shape.kind), shape.m,
                           shape.n, shape.k, gap, dtype_name(shape.dtype), dtype_name(out), alpha, beta));
  const Operands operands(shape, gap);
  const at::Tensor whole = at::randn({shape.m, shape.n + gap}, at::kFloat).to(out), before = whole.clone();
  const at::Tensor c = whole.narrow(1, gap / 2, shape.n);
  const at::Tensor old = beta == 0 ? at::zeros(c.sizes(), at::kDouble) : c.to(at::kDouble) * beta;
  if (beta == 0) c.fill_(std::numeric_limits<double>::quiet_NaN());
  const at::Tensor a = operands.a.to(at::kDouble), b = operands.b.to(at::kDouble), exact = a.mm(b) * alpha + old;
  make_skinny_gemm()->run(operands.a, operands.b, c, beta, alpha);

  const double steps = (static_cast<double>(shape.k) + 3) * 0x1p-24;
  at::Tensor bound = (a.abs().mm(b.abs()) * std::abs(alpha) + old.abs()) * (steps / (1 - steps));
  if (out != at::kFloat) bound += (exact.abs() + bound) * unit_roundoff(out);
  if (out == at::kHalf) bound += 0x1p-25;  // half the distance between subnormal numbers
  const at::Tensor excess = (c.to(at::kDouble) - exact).abs() - bound;
  EXPECT_TRUE(excess.le(0).all().item<bool>()) << "by " << excess.max().item<double>();
  c.copy_(before.narrow(1, gap / 2, shape.n));
  EXPECT_TRUE(whole.equal(before)) << "wrote outside of c";
}

TEST(SkinnyGemm, MultipliesAllLayouts) {
  register_gemm_providers();
  check_products("skinny");
}

TEST(SkinnyGemm, AgreesWithFp64OnOddSizes) {
  std::mt19937 random(7);
  const auto pick = [&](auto... values) {
    const std::array each{values...};
    return each[random() % each.size()];
  };
  for (const GemmKind kind : kKinds) {
    for (const at::ScalarType dtype : kDtypes) {
      for (int i = 0; i < 25; ++i) {
        const int64_t few = 1 + static_cast<int64_t>(random() % 100), n = 1 + static_cast<int64_t>(random() % 300);
        const int64_t long_one =
            pick(int64_t{1}, int64_t{63}, int64_t{64}, int64_t{128}, int64_t{129}, int64_t{1040}, int64_t{2500});
        const GemmShape shape = kind == GemmKind::weight_gradient ? GemmShape{kind, dtype, long_one, n, few}
                                : pick(0, 1)                      ? GemmShape{kind, dtype, few, n, long_one}
                                                                  : GemmShape{kind, dtype, few, long_one, n};
        check(shape, pick(0, 5), pick(0, 1) ? at::kFloat : dtype, pick(1.0, -1.5), pick(0.0, 1.0, 0.5));
      }
    }
  }
}

TEST(SkinnyGemm, HasTheSameBitsOnEveryInstructionSet) {
  for (const GemmKind kind : kKinds) {
    for (const at::ScalarType dtype : kDtypes) {
      for (const auto& [m, n, k] : std::vector<std::array<int64_t, 3>>{{31, 99, 301}, {200, 67, 77}, {9, 2100, 40}}) {
        const Operands operands({kind, dtype, m, n, k}, 3);
        const at::Tensor wanted = operands.product(Isa::plain);
        for (const Isa isa : supported_isas()) EXPECT_TRUE(operands.product(isa).equal(wanted)) << isa_name(isa);
      }
    }
  }
}

TEST(SkinnyGemm, HasTheSameBitsForAnyNumberOfThreads) {
  const int before = at::get_num_threads();
  for (const GemmKind kind : kKinds) {
    const Operands operands({kind, at::kFloat, 70, 1500, 300}, 0), few({kind, at::kFloat, 700, 500, 90}, 0);
    at::set_num_threads(1);
    const at::Tensor wanted = operands.product(), wanted_few = few.product();
    for (const int threads : {2, 5}) {
      at::set_num_threads(threads);
      EXPECT_TRUE(operands.product().equal(wanted));
      EXPECT_TRUE(few.product().equal(wanted_few));
    }
  }
  at::set_num_threads(before);
}

// Some of these row counts use the loop by columns, others the loop by rows.
TEST(SkinnyGemm, ARowDoesNotDependOnTheOthers) {
  for (const GemmKind kind : kKinds) {
    for (const int64_t k : {90, 301}) {
      Operands operands({kind, at::kFloat, 150, 99, k}, 0);
      const at::Tensor wanted = operands.product(), all = operands.a;
      for (const auto& [begin, rows] : std::vector<std::array<int64_t, 2>>{{0, 8}, {77, 9}, {3, 31}, {50, 96}, {135, 15}}) {
        operands.a = all.narrow(0, begin, rows);
        EXPECT_TRUE(operands.product().equal(wanted.narrow(0, begin, rows))) << begin << " " << rows;
      }
    }
  }
}

TEST(SkinnyGemm, KeepsInfinityAndNanInTheirRowAndColumn) {
  for (const GemmKind kind : kKinds) {
    const Operands operands({kind, at::kFloat, 13, 51, 19}, 0);
    const at::Tensor wanted = operands.product();
    operands.a[12].fill_(std::numeric_limits<float>::infinity());
    operands.b.select(1, 50).fill_(std::numeric_limits<float>::quiet_NaN());
    const at::Tensor got = operands.product();
    EXPECT_TRUE(got.narrow(0, 0, 12).narrow(1, 0, 50).equal(wanted.narrow(0, 0, 12).narrow(1, 0, 50)));
    EXPECT_TRUE(got.select(1, 50).isnan().all().item<bool>());
    EXPECT_FALSE(got[12].isfinite().any().item<bool>());
  }
}

// Widens every 16-bit number, in whole registers and one by one.
TEST(SkinnyGemm, WidensExactly) {
  const at::Tensor bits = at::arange(1 << 16, at::kInt).to(at::kShort);
  for (const at::ScalarType dtype : {at::kBFloat16, at::kHalf}) {
    const at::Tensor every = bits.view(dtype), wide = every.to(at::kFloat);
    for (const Isa isa : supported_isas()) {
      const at::Tensor c = at::empty({1, 1 << 16});
      make_skinny_gemm(isa)->run(at::ones({1, 1}, dtype), every.unsqueeze(0), c, 0, 1);
      EXPECT_TRUE(at::allclose(c[0], wide, 0, 0, true)) << isa_name(isa);
      for (int64_t i = 0; i < 1 << 16; i += 4099) {
        const at::Tensor one = at::empty({1, 1});
        make_skinny_gemm(isa)->run(at::ones({1, 1}, dtype), every.narrow(0, i, 1).unsqueeze(0), one, 0, 1);
        EXPECT_TRUE(at::allclose(one[0], wide.narrow(0, i, 1), 0, 0, true)) << isa_name(isa) << " " << i;
      }
    }
  }
}

// Subnormal numbers of half precision are normal numbers of single precision, so they must not be flushed to zero.
TEST(SkinnyGemm, WidensSubnormalHalvesWhereDenormalNumbersAreFlushed) {
  const at::Tensor every = at::arange(1 << 10, at::kInt).to(at::kShort).view(at::kHalf), wide = every.to(at::kFloat);
  if (!at::globalContext().setFlushDenormal(true)) GTEST_SKIP() << "this processor cannot flush denormal numbers";
  for (const Isa isa : supported_isas()) {
    for (const int64_t count : {int64_t{1}, int64_t{1} << 10}) {
      const at::Tensor c = at::empty({1, count});
      make_skinny_gemm(isa)->run(at::ones({1, 1}, at::kHalf), every.narrow(0, (1 << 10) - count, count).unsqueeze(0), c, 0, 1);
      EXPECT_TRUE(c[0].equal(wide.narrow(0, (1 << 10) - count, count))) << isa_name(isa) << " " << count;
    }
  }
  at::globalContext().setFlushDenormal(false);
}

}  // namespace
}  // namespace zt::test
