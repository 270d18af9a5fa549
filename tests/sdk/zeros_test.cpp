#include "zt/zeros.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

namespace zt {
namespace {

// Huge pages are whole ones inside: sizes around those of one and of none.
TEST(LargeZeros, AreZeroEverywhere) {
  for (const int64_t numel : {0, 1, 3, (1 << 18) - 1, 1 << 19, (1 << 20) + 5, 3 << 20}) {
    for (int again = 0; again < 2; ++again) {  // the second one may get used memory
      const at::Tensor x = large_zeros({numel}, at::kFloat);
      ASSERT_EQ(x.sizes(), at::IntArrayRef{numel});
      ASSERT_EQ(x.count_nonzero().item<int64_t>(), 0) << numel;
      at::Tensor(x).fill_(1);
    }
  }
}

TEST(LargeZeros, HaveTheDtypeAndTheDevice) {
  EXPECT_EQ(large_zeros({2, 3}, at::kBFloat16).scalar_type(), at::kBFloat16);
  EXPECT_TRUE(large_zeros({int64_t{1} << 40}, at::TensorOptions().device(at::kMeta)).is_meta());
}

}  // namespace
}  // namespace zt
