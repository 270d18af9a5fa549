// Tests the provider "dots": its results against fp64 within the theoretical bound, and the bits that it guarantees.
#include "dots.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <array>
#include <limits>

#include "processor.h"
#include "providers.h"
#include "support/gemm_products.h"
#include "zt/base/tensor.h"

namespace zt::test {
namespace {

constexpr std::array kDotsDtypes{at::kFloat, at::kBFloat16, at::kHalf};

// Rows of a batch, and a weight [out, in].
struct DotsOperands {
  at::Tensor x, weight;

  DotsOperands(at::ScalarType dtype, int64_t rows, int64_t out, int64_t in)
      : x(at::randn({rows, in}).to(dtype)), weight(at::randn({out, in}).to(dtype)) {}

  at::Tensor product(const at::Tensor& rows, Isa isa = best_isa(), bool pairs = find_processor().has_bf16) const {
    const at::Tensor c = at::full({rows.size(0), weight.size(0)}, std::numeric_limits<float>::quiet_NaN());
    make_dots_gemm(isa, pairs)->run(rows, weight.t(), c, 0, 1);
    return c;
  }
};

TEST(DotsGemm, MultipliesAllLayouts) {
  register_gemm_providers();
  check_products("dots");
}

TEST(DotsGemm, AgreesWithFp64) {
  for (const at::ScalarType dtype : kDotsDtypes) {
    for (const auto& [rows, out, in] :
         std::vector<std::array<int64_t, 3>>{{1, 37, 1}, {5, 8, 31}, {17, 9, 1024}, {200, 70, 2500}}) {
      const DotsOperands operands(dtype, rows, out, in);
      const at::Tensor x = operands.x.to(at::kDouble), w = operands.weight.to(at::kDouble).t();
      const double steps = static_cast<double>(in + 3) * 0x1p-24;
      const at::Tensor bound = x.abs().mm(w.abs()) * (steps / (1 - steps));
      EXPECT_TRUE((operands.product(operands.x).to(at::kDouble) - x.mm(w)).abs().le(bound).all().item<bool>()) << in;
    }
  }
}

// Some of these row counts take all blocks of steps at a time, and some have a part of their own.
TEST(DotsGemm, ARowDoesNotDependOnTheOthers) {
  for (const at::ScalarType dtype : kDotsDtypes) {
    for (const int64_t in : {40, 1024, 2100}) {
      const DotsOperands operands(dtype, 450, 45, in);
      const at::Tensor wanted = operands.product(operands.x);
      for (const auto& [begin, rows] :
           std::vector<std::array<int64_t, 2>>{{0, 1}, {449, 1}, {3, 2}, {77, 5}, {190, 6}, {200, 16}, {13, 17}, {100, 200}})
        EXPECT_TRUE(operands.product(operands.x.narrow(0, begin, rows)).equal(wanted.narrow(0, begin, rows)))
            << begin << " " << rows;
    }
  }
}

TEST(DotsGemm, HasTheSameBitsOnEveryInstructionSetAndForAnyNumberOfThreads) {
  const int before = at::get_num_threads();
  for (const at::ScalarType dtype : kDotsDtypes) {
    for (const auto& [rows, out, in] : std::vector<std::array<int64_t, 3>>{{1, 99, 301}, {31, 67, 1400}}) {
      const DotsOperands operands(dtype, rows, out, in);
      const at::Tensor wanted = operands.product(operands.x, Isa::plain, false);
      for (const Isa isa : supported_isas()) {
        for (const int threads : {1, 3}) {
          at::set_num_threads(threads);
          EXPECT_TRUE(operands.product(operands.x, isa).equal(wanted)) << isa_name(isa) << " " << dtype_name(dtype);
          EXPECT_TRUE(operands.product(operands.x, isa, false).equal(wanted)) << isa_name(isa) << " " << dtype_name(dtype);
        }
      }
    }
  }
  at::set_num_threads(before);
}

TEST(DotsGemm, KeepsInfinityAndNanInTheirRowAndColumn) {
  for (const at::ScalarType dtype : kDotsDtypes) {
    const DotsOperands operands(dtype, 13, 51, 19);
    const at::Tensor wanted = operands.product(operands.x);
    operands.x[12].fill_(std::numeric_limits<float>::infinity());
    operands.weight[50].fill_(std::numeric_limits<float>::quiet_NaN());
    const at::Tensor got = operands.product(operands.x);
    EXPECT_TRUE(got.narrow(0, 0, 12).narrow(1, 0, 50).equal(wanted.narrow(0, 0, 12).narrow(1, 0, 50)));
    EXPECT_TRUE(got.select(1, 50).isnan().all().item<bool>());
    EXPECT_FALSE(got[12].isfinite().any().item<bool>());
  }
}

}  // namespace
}  // namespace zt::test
