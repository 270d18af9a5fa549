// The gradient norm of buffers on a GPU: the same bits as on the host.
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/exp2.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/scalar_tensor.h>
#include <gtest/gtest.h>

#include <limits>

#include "support/cuda_device.h"
#include "zt/execute/gradient_norm.h"

namespace zt {
namespace {

constexpr at::ScalarType kTypes[] = {at::kFloat, at::kDouble, at::kBFloat16, at::kHalf};

// Compares the words of the two sums.
void expect_equal(const at::Tensor& flat, int64_t begin, int64_t end) {
  ExactSum expected;
  add_squares(flat, begin, end, expected);
  const auto sum = ExactSum::from_state(squares_on_device(flat.cuda(), begin, end).cpu());
  EXPECT_TRUE(at::equal(sum.state(), expected.state())) << flat.scalar_type() << " [" << begin << ", " << end << ")";
}

TEST(NormOnGpu, HasTheBitsOfTheHost) {
  ZT_NEEDS_GPU();
  for (const auto dtype : kTypes) {
    const at::Tensor scales = at::exp2(at::arange(3000077, at::kDouble).remainder(61) - 40);  // so that many limbs are used
    const at::Tensor x = (at::randn({3000077}, at::make_generator<at::CPUGeneratorImpl>(7), at::kDouble) * scales).to(dtype);
    for (const auto& [begin, end] : std::vector<std::pair<int64_t, int64_t>>{
             {0, x.numel()}, {777, 2000001}, {256, 512}, {5, 5}, {0, 1}, {0, 257}, {96, 1056}, {255, 257}, {77, 300}}) {
      expect_equal(x, begin, end);
    }
  }
}

TEST(NormOnGpu, CountsWhatIsNotFinite) {
  ZT_NEEDS_GPU();
  constexpr double kInf = std::numeric_limits<double>::infinity();
  for (const auto dtype : kTypes) {
    for (const double special : {kInf, -kInf, std::nan(""), 65504.0, 0x1p-24, 0x1p-149, 0x1p1000}) {
      at::Tensor flat = at::ones({701}, dtype);
      flat[300] = at::scalar_tensor(special, at::kDouble).to(dtype);
      expect_equal(flat, 0, 701);
    }
  }
}

}  // namespace
}  // namespace zt
