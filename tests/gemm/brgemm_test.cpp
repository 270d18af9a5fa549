// Tests the provider "brgemm": its results against fp64, sizes around its tiles and blocks, and that threads change no bit.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include "providers.h"
#include "support/gemm_products.h"
#include "zt/gemm/gemm_choice.h"

namespace zt::test {
namespace {

class BrgemmTest : public testing::Test {
 protected:
  void SetUp() override {
    register_gemm_providers();
    if (!has_gemm("brgemm")) GTEST_SKIP() << "this processor has no bf16 instructions";
  }
};

TEST_F(BrgemmTest, Multiplies) {
  check_products("brgemm");
}

// Whole numbers up to 4 in sums of at most 1100 terms are exact in fp32, so every layout gives the exact result.
TEST_F(BrgemmTest, IsExactForWholeNumbersOfAnySizeAndLayout) {
  const auto whole = [](int64_t rows, int64_t columns) {
    return at::randint(-4, 5, {rows, columns}, at::TensorOptions().dtype(at::kBFloat16));
  };
  for (const int64_t m : {1, 15, 16, 64, 65, 130}) {
    for (const int64_t n : {1, 33, 64, 150}) {
      for (const int64_t k : {1, 2, 63, 64, 65, 511, 512, 513, 1100}) {
        for (const bool is_transposed : {false, true}) {
          const at::Tensor a = is_transposed ? whole(k, m).t() : whole(m, k), b = is_transposed ? whole(k, n) : whole(n, k).t();
          const at::Tensor c = at::ones({m, n}), wanted = at::mm(a.to(at::kDouble), b.to(at::kDouble));
          find_gemm("brgemm").run(a, b, c, 1, 1);
          ASSERT_TRUE(c.to(at::kDouble).equal(wanted + 1))
              << m << " x " << n << " x " << k << (is_transposed ? ", transposed" : "");
        }
      }
    }
  }
}

TEST_F(BrgemmTest, HasTheSameBitsForAnyNumberOfThreads) {
  const int before = at::get_num_threads();
  const at::Tensor a = at::randn({600, 300}).to(at::kBFloat16).t(), b = at::randn({600, 170}).to(at::kBFloat16);
  std::vector<at::Tensor> results;
  for (const int threads : {1, 3}) {
    at::set_num_threads(threads);
    results.push_back(at::empty({300, 170}));
    find_gemm("brgemm").run(a, b, results.back(), 0, 1);
  }
  at::set_num_threads(before);
  EXPECT_TRUE(results[0].equal(results[1]));
}

}  // namespace
}  // namespace zt::test
