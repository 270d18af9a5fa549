// The gradient norm of buffers on a GPU: the same bits as on the host.
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>
#include <ATen/ops/randn.h>
#include <gtest/gtest.h>

#include "zt/execute/gradient_norm.h"

namespace zt {
namespace {

TEST(NormOnGpu, HasTheBitsOfTheHost) {
  if (!at::hasCUDA()) GTEST_SKIP() << "there is no GPU";
  for (const auto dtype : {at::kFloat, at::kDouble, at::kBFloat16, at::kHalf}) {
    const at::Tensor x = at::randn({3000077}, at::make_generator<at::CPUGeneratorImpl>(7), dtype);
    for (const auto& [begin, end] : {std::pair<int64_t, int64_t>{0, x.numel()}, {777, 2000001}, {256, 512}, {5, 5}}) {
      ExactSum expected;
      add_squares(x, begin, end, expected);
      const auto sum = ExactSum::from_state(squares_on_device(x.cuda(), begin, end).cpu());
      EXPECT_TRUE(at::equal(sum.state(), expected.state())) << dtype << " [" << begin << ", " << end << ")";
    }
  }
}

}  // namespace
}  // namespace zt
