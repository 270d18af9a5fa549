#include "core/reduce_tree.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <limits>

#include "zt/base/error.h"

namespace zt::comm {

namespace {

template <class T>
std::vector<T> reduced(at::ScalarType dtype, ReduceOp op, const std::vector<std::vector<T>>& inputs) {
  std::vector<const void*> sources;
  for (const auto& input : inputs) sources.push_back(input.data());
  std::vector<T> out(inputs[0].size());
  reduce_tree(dtype, op, out.data(), sources, static_cast<int64_t>(out.size()));
  return out;
}

TEST(ReduceTree, FollowsTheTreeNotTheLine) {
  // In fp32 1e8 + 1 = 1e8. Five ranks: ((a + b) + (c + d)) + e.
  EXPECT_EQ(reduced<float>(at::kFloat, ReduceOp::sum, {{1e8f}, {1.f}, {-1e8f}, {1.f}, {1.f}})[0], 1.f);
  EXPECT_EQ(reduced<float>(at::kFloat, ReduceOp::sum, {{1e8f}, {-1e8f}, {1.f}, {1.f}, {1.f}})[0], 3.f);
  // Three: (a + b) + c.
  EXPECT_EQ(reduced<float>(at::kFloat, ReduceOp::sum, {{1.f}, {1e8f}, {-1e8f}})[0], 0.f);
  // Seven: ((a + b) + (c + d)) + ((e + f) + g).
  EXPECT_EQ(reduced<float>(at::kFloat, ReduceOp::sum, {{0.f}, {0.f}, {0.f}, {0.f}, {1.f}, {1e8f}, {-1e8f}})[0], 0.f);
}

TEST(ReduceTree, IntegersWrap) {
  EXPECT_EQ(reduced<int8_t>(at::kChar, ReduceOp::sum, {{127}, {1}})[0], -128);
  EXPECT_EQ(reduced<int32_t>(at::kInt, ReduceOp::product, {{1 << 30}, {4}})[0], 0);
  EXPECT_EQ(reduced<uint16_t>(at::kUInt16, ReduceOp::product, {{65535}, {65535}})[0], 1);
  const int64_t low = std::numeric_limits<int64_t>::min();
  EXPECT_EQ(reduced<int64_t>(at::kLong, ReduceOp::sum, {{low}, {-1}})[0], std::numeric_limits<int64_t>::max());
  EXPECT_EQ(reduced<int8_t>(at::kChar, ReduceOp::min, {{-3}, {2}})[0], -3);
}

TEST(ReduceTree, NotANumberWinsOnEitherSide) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const ReduceOp op : {ReduceOp::max, ReduceOp::min, ReduceOp::sum, ReduceOp::product}) {
    const auto out = reduced<float>(at::kFloat, op, {{nan, 1.f}, {1.f, nan}});
    EXPECT_TRUE(std::isnan(out[0]) && std::isnan(out[1]));
  }
}

// Adds every bit pattern of a 16-bit float to three constants and compares the sums with ATen's conversions.
TEST(ReduceTree, SixteenBitConversionsAreATens) {
  for (const auto dtype : {at::kBFloat16, at::kHalf}) {
    const auto bits = at::arange(65536).to(at::kShort);
    const auto all = bits.view(dtype);
    for (const double addend : {0.0, 1.0, 3.0e-3}) {
      const auto other = at::full({65536}, addend, dtype);
      auto out = at::empty({65536}, dtype);
      const std::vector<const void*> sources{all.const_data_ptr(), other.const_data_ptr()};
      reduce_tree(dtype, ReduceOp::sum, out.mutable_data_ptr(), sources, 65536);
      const auto expected = all.to(at::kFloat).add(other.to(at::kFloat)).to(dtype);
      EXPECT_TRUE(at::equal(out.isnan(), expected.isnan()));
      EXPECT_TRUE(at::equal(out.nan_to_num().view(at::kShort), expected.nan_to_num().view(at::kShort)));
    }
  }
}

TEST(ReduceTree, OutMayBeAnySource) {
  for (size_t alias = 0; alias < 5; ++alias) {
    std::vector<std::vector<double>> inputs;
    for (int s = 0; s < 5; ++s) inputs.emplace_back(3000, s + 1.0);
    std::vector<const void*> sources;
    for (const auto& input : inputs) sources.push_back(input.data());
    reduce_tree(at::kDouble, ReduceOp::sum, inputs[alias].data(), sources, 3000);
    EXPECT_EQ(inputs[alias], std::vector<double>(3000, 15.0));
  }
}

TEST(ReduceTree, OneSourceIsACopyOfAnyType) {
  EXPECT_EQ(reduced<float>(at::kFloat, ReduceOp::sum, {{2.f}})[0], 2.f);
  EXPECT_FALSE(is_reducible(at::kComplexFloat));
  EXPECT_THROW(reduced<float>(at::kComplexFloat, ReduceOp::sum, {{1.f, 2.f}, {1.f, 2.f}}), Misuse);
}

}  // namespace

}  // namespace zt::comm
