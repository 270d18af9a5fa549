// Tests the provider "mkl": its results against fp64, and the memory that it needs.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "processor.h"
#include "providers.h"
#include "support/gemm_products.h"
#include "zt/gemm/gemm_choice.h"
#include "zt/plan/allocation.h"

namespace zt::test {
namespace {

TEST(MklGemm, Multiplies) {
  register_gemm_providers();
  if (!has_gemm("mkl")) GTEST_SKIP() << "this LibTorch has no MKL";
  check_products("mkl");
}

// fp32 copies would need 128 MiB for b and 8 MiB for c.
TEST(MklGemm, WidensInTilesWhereTheProcessorHasNoInstructions) {
  register_gemm_providers();
  if (!has_gemm("mkl")) GTEST_SKIP() << "this LibTorch has no MKL";
  if (find_processor().has_bf16) GTEST_SKIP() << "this processor multiplies bf16";
  const at::Tensor a = at::ones({16, 256}, at::kBFloat16), b = at::ones({256, 131072}, at::kBFloat16);
  const at::Tensor c = at::empty({16, 131072}, at::kBFloat16);
  AllocationWatch watch;
  {
    const AllocationWatch::Scope counted(watch);
    find_gemm("mkl").run(a, b, c, 0, 1);
  }
  EXPECT_LT(watch.peak_bytes(), 4 << 20);
  EXPECT_TRUE(c.eq(256).all().item<bool>());
}

}  // namespace
}  // namespace zt::test
