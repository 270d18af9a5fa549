#include "support/gemm_products.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <array>
#include <limits>
#include <vector>

#include "zt/base/tensor.h"
#include "zt/gemm/gemm_choice.h"

namespace zt::test {

namespace {

enum class Layout : uint8_t { rows, columns, part, part_of_columns, every_second, broadcast };
constexpr std::array kReadable{Layout::rows,         Layout::columns,  Layout::part, Layout::part_of_columns,
                               Layout::every_second, Layout::broadcast};
constexpr std::array kWritable{Layout::rows, Layout::columns, Layout::part, Layout::every_second};

// Returns [rows, columns] random numbers with the given memory layout.
at::Tensor matrix(int64_t rows, int64_t columns, Layout layout, at::ScalarType dtype) {
  const auto random = [&](int64_t m, int64_t n) { return at::randn({m, n}, at::kDouble).to(dtype); };
  switch (layout) {
    case Layout::rows:
      return random(rows, columns);
    case Layout::columns:
      return random(columns, rows).t();
    case Layout::part:
      return random(rows + 2, columns + 5).narrow(0, 1, rows).narrow(1, 3, columns);
    case Layout::part_of_columns:
      return random(columns + 1, rows + 3).narrow(0, 1, columns).narrow(1, 2, rows).t();
    case Layout::every_second:
      return random(2 * rows + 1, 2 * columns + 1).slice(0, 0, 2 * rows, 2).slice(1, 1, 2 * columns + 1, 2);
    case Layout::broadcast:
      return random(1, columns).expand({rows, columns});
  }
  return {};
}

struct Case {
  int64_t m, n, k;
  Layout a, b, c;
  double alpha, beta;
  at::ScalarType in, out;

  std::string text() const {
    return fmt::format("{} x {} x {} with layouts {} {} {}, alpha {}, beta {}, {} to {}", m, n, k, static_cast<int>(a),
                       static_cast<int>(b), static_cast<int>(c), alpha, beta, dtype_name(in), dtype_name(out));
  }
};

double unit_roundoff(at::ScalarType dtype) {
  if (dtype == at::kDouble) return 0x1p-53;
  if (dtype == at::kFloat) return 0x1p-24;
  return dtype == at::kBFloat16 ? 0x1p-8 : 0x1p-11;
}

// Returns the error bound: the usual one for a sum of k products and one more term in any order, and one rounding to c's dtype.
// If c has 16 bits, "aten" may also round a b and beta c to 16 bits before it adds them. The factor 2 covers terms of second
// order.
at::Tensor bound_of(const Case& each, const std::string& provider, const at::Tensor& product, const at::Tensor& sizes,
                    const at::Tensor& old, const at::Tensor& exact) {
  const double sum = unit_roundoff(each.in == at::kDouble ? at::kDouble : at::kFloat);
  const double steps = static_cast<double>(each.k) + 3;
  at::Tensor bound = (sizes * std::abs(each.alpha) + old.abs()) * (2 * steps * sum) + exact.abs() * (2 * unit_roundoff(each.out));
  if (provider == "aten" && each.out == each.in) bound += (product.abs() + old.abs()) * (2 * unit_roundoff(each.in));
  // Denormal numbers of fp16 have a fixed distance of 2^-24.
  return bound + (each.out == at::kHalf || each.in == at::kHalf ? 0x1p-24 : 0);
}

void check_case(const Case& each, const std::string& provider) {
  SCOPED_TRACE(each.text());
  const at::Tensor a = matrix(each.m, each.k, each.a, each.in), b = matrix(each.k, each.n, each.b, each.in);
  const at::Tensor c = matrix(each.m, each.n, each.c, each.out);
  if (each.beta == 0) c.fill_(std::numeric_limits<double>::quiet_NaN());
  const at::Tensor old = each.beta == 0 ? at::zeros(c.sizes(), at::kDouble) : c.to(at::kDouble) * each.beta;
  const at::Tensor wide_a = a.to(at::kDouble), wide_b = b.to(at::kDouble);
  const at::Tensor product = wide_a.mm(wide_b) * each.alpha, exact = product + old;
  gemm(GemmKind::forward, a, b, c, each.beta, each.alpha);
  if (c.numel() == 0) return;
  const at::Tensor bound = bound_of(each, provider, product, wide_a.abs().mm(wide_b.abs()), old, exact);
  const at::Tensor excess = (c.to(at::kDouble) - exact).abs() - bound;
  EXPECT_TRUE(excess.le(0).all().item<bool>()) << "by " << excess.max().item<double>();
}

void check_dtypes(const std::string& provider, at::ScalarType in, at::ScalarType out) {
  using Size = std::array<int64_t, 3>;
  for (const auto& [m, n, k] : std::vector<Size>{{1, 1, 1}, {3, 5, 7}, {33, 17, 129}, {64, 96, 300}}) {
    for (const Layout a : kReadable) {
      for (const Layout b : kReadable) check_case({m, n, k, a, b, Layout::rows, 1, 0, in, out}, provider);
    }
    for (const Layout c : kWritable) {
      for (const double beta : {0.0, 1.0, -0.5}) {
        for (const double alpha : {1.0, 1.5})
          check_case({m, n, k, Layout::columns, Layout::rows, c, alpha, beta, in, out}, provider);
      }
    }
  }
  // More than one tile in each direction.
  for (const auto& [m, n, k] : std::vector<Size>{{1030, 1030, 5}, {40, 1030, 260}, {1030, 40, 260}}) {
    for (const double beta : {0.0, -0.5}) {
      check_case({m, n, k, Layout::columns, Layout::rows, Layout::part, 1.5, beta, in, out}, provider);
      check_case({m, n, k, Layout::part, Layout::part_of_columns, Layout::columns, 1, beta, in, out}, provider);
    }
  }
  for (const auto& [m, n, k] : std::vector<Size>{{0, 3, 4}, {3, 0, 4}, {3, 4, 0}, {0, 0, 0}, {1, 6, 5}, {6, 1, 5}, {6, 5, 1}}) {
    for (const double beta : {0.0, 1.0, 0.5}) {
      check_case({m, n, k, Layout::rows, Layout::columns, Layout::rows, 1, beta, in, out}, provider);
      check_case({m, n, k, Layout::columns, Layout::rows, Layout::part, 1, beta, in, out}, provider);
    }
  }
}

}  // namespace

void check_products(const std::string& provider) {
  use_gemm_choice(fixed_gemm_choice(provider));
  for (const at::ScalarType in : {at::kFloat, at::kDouble, at::kBFloat16, at::kHalf}) {
    if (!find_gemm(provider).takes(at::kCPU, in)) continue;
    check_dtypes(provider, in, in);
    if (in == at::kBFloat16 || in == at::kHalf) check_dtypes(provider, in, at::kFloat);
  }
  use_gemm_choice(default_gemm_choice());
}

}  // namespace zt::test
