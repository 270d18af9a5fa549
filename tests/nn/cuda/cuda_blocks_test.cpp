// Compares attention in blocks on a GPU, merged, with attention to the whole sequence on the CPU in float64.
#include <gtest/gtest.h>

#include "../context/block_cases.h"
#include "support/cuda_device.h"

namespace zt::nn {
namespace {

class CudaBlocks : public testing::TestWithParam<BlockCase> {};

TEST_P(CudaBlocks, AreTheWhole) {
  ZT_NEEDS_GPU();
  const BlockCase& c = GetParam();
  for (const auto dtype : {at::kDouble, at::kFloat, at::kBFloat16, at::kHalf}) {
    expect_the_whole(c, kAten, dtype, at::kCUDA);
    const bool has_kernel = has_flash(c) && c10::elementSize(dtype) == 2 && c.shape.head_dim % 8 == 0;
    if (has_kernel) expect_the_whole(c, kFlash, dtype, at::kCUDA);
  }
}

INSTANTIATE_TEST_SUITE_P(Nn, CudaBlocks,
                         testing::Values(BlockCase{"causal", true, 0, false, false, {4, 4, 64}},
                                         BlockCase{"whole", false, 0, false, false, {4, 2, 16}},
                                         BlockCase{"uneven_heads", true, 0, false, false, {3, 2, 8, 2, 1}},
                                         BlockCase{"window", true, 13}, BlockCase{"packed", true, 0, true},
                                         BlockCase{"dropout", true, 0, false, true},
                                         BlockCase{"all", true, 7, true, true, {3, 1, 8}}),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace zt::nn
