// Tests the provider "blis": its results against fp64, and that slices by threads change no bit.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include "providers.h"
#include "support/gemm_products.h"
#include "zt/gemm/gemm_choice.h"

namespace zt::test {
namespace {

TEST(BlisGemm, Multiplies) {
  register_gemm_providers();
  if (!has_gemm("blis")) GTEST_SKIP() << "BLIS is not installed";
  check_products("blis");
}

TEST(BlisGemm, HasTheSameBitsForAnyNumberOfThreads) {
  register_gemm_providers();
  if (!has_gemm("blis")) GTEST_SKIP() << "BLIS is not installed";
  const int before = at::get_num_threads();
  for (const auto& [m, n] : {std::pair{513, 130}, {65, 1031}}) {
    const at::Tensor a = at::randn({m, 517}), b = at::randn({n, 517}).t();
    std::vector<at::Tensor> results;
    for (const int threads : {1, 3}) {
      at::set_num_threads(threads);
      const at::Tensor c = at::ones({m, n});
      find_gemm("blis").run(a, b, c, 0.5, 2);
      results.push_back(c);
    }
    EXPECT_TRUE(results[0].equal(results[1])) << m << " x " << n;
  }
  at::set_num_threads(before);
}

}  // namespace
}  // namespace zt::test
