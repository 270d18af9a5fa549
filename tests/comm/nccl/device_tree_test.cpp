// Compares device_tree, which uses ATen, with reduce_tree. The device is the CPU here.
#include "nccl/device_tree.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>

#include <limits>

#include "nccl_fixture.h"
#include "zt/base/tensor.h"

namespace zt::comm {

namespace {

using namespace fake;

TEST(DeviceTree, HasTheBitsOfReduceTree) {
  for (const auto dtype : {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16, at::kByte, at::kChar, at::kShort, at::kInt,
                           at::kLong, at::kUInt16, at::kUInt32, at::kUInt64, at::kBool}) {
    for (const auto op : {ReduceOp::sum, ReduceOp::max, ReduceOp::min, ReduceOp::product}) {
      for (int ranks = 1; ranks <= 9 && is_reducible_on_device(dtype, op); ++ranks) {
        const auto sources = sources_of(ranks, 33, dtype);
        const auto expected = reduce_sources(sources, op);
        for (int place = 0; place < ranks; ++place) {  // the result overwrites source `place`
          std::vector<at::Tensor> copies;
          for (const auto& tensor : sources) copies.push_back(tensor.clone());
          device_tree(copies[place], copies, op);
          for (int r = 0; r < ranks; ++r) {
            EXPECT_TRUE(same_bits(copies[r], r == place ? expected : sources[r]))
                << dtype_name(dtype) << " " << name_of(op) << " of " << ranks << " in place of " << place << ", source " << r;
          }
        }
      }
    }
  }
}

TEST(DeviceTree, NotANumberWins) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (const auto op : {ReduceOp::max, ReduceOp::min}) {
    const std::vector<at::Tensor> sources{at::tensor({nan, 1.0, 1.0}), at::tensor({1.0, nan, 1.0})};
    const auto out = at::empty({3}, at::kDouble);
    device_tree(out, sources, op);
    EXPECT_TRUE(at::equal(out.isnan().to(at::kLong), at::tensor({1, 1, 0}, at::kLong)));
  }
}

TEST(DeviceTree, KnowsWhatAtenHas) {
  EXPECT_TRUE(is_reducible_on_device(at::kUInt32, ReduceOp::sum));
  EXPECT_FALSE(is_reducible_on_device(at::kUInt32, ReduceOp::max));
  EXPECT_TRUE(is_reducible_on_device(at::kByte, ReduceOp::max));
  EXPECT_FALSE(is_reducible_on_device(at::kComplexFloat, ReduceOp::sum));
}

}  // namespace

}  // namespace zt::comm
