// The sums of squares of the gradient norm.
#include "zt/execute/gradient_norm.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>
#include <random>

#include "execute/norm/norm_order.h"
#include "zt/base/error.h"

namespace zt {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// The definition, implemented literally: the squares of a block are summed in 16 lanes, the lanes by a tree. Elements outside of
// [begin, end) count as zero.
template <class T>
double reference_block(const std::vector<T>& x, int64_t block, int64_t begin, int64_t end) {
  std::vector<double> lane(16, 0.0);
  for (int64_t i = block; i < block + 256; ++i) {
    const double v = i >= begin && i < end ? static_cast<double>(x[i]) : 0.0;
    lane[i % 16] = lane[i % 16] + v * v;
  }
  for (const int width : {8, 4, 2, 1}) {
    for (int j = 0; j < width; ++j) lane[j] = lane[j] + lane[j + width];
  }
  return lane[0];
}

template <class T>
at::Tensor tensor_of(const std::vector<T>& values) {
  const at::Tensor out = at::empty({static_cast<int64_t>(values.size())}, c10::CppTypeToScalarType<T>::value);
  std::copy(values.begin(), values.end(), out.data_ptr<T>());
  return out;
}

template <class T>
std::vector<T> normal_numbers(int64_t count) {
  std::mt19937_64 random(7);
  std::normal_distribution<double> normal(0, 3);
  std::vector<T> out(count);
  for (T& x : out) x = static_cast<T>(normal(random));
  return out;
}

// Does on the CPU what the kernel of a GPU does: each lane of a team sums its squares, and the lanes are added in pairs.
template <class T>
ExactSum squares_of_teams(const T* x, int64_t begin, int64_t end) {
  ExactSum sum;
  for (int64_t block = begin / kNormBlock; block * kNormBlock < end; ++block) {
    std::array<double, kNormLanes> lanes;
    for (int lane = 0; lane < kNormLanes; ++lane) lanes[lane] = lane_squares(x, block, lane, begin, end);
    for (int half = kNormLanes / 2; half > 0; half /= 2) {
      for (int lane = 0; lane < half; ++lane) lanes[lane] += lanes[lane + half];
    }
    sum.add(lanes[0]);
  }
  return sum;
}

template <class T>
class AddSquares : public testing::Test {};
using ElementTypes = testing::Types<float, double, c10::BFloat16, c10::Half>;
TYPED_TEST_SUITE(AddSquares, ElementTypes);

TYPED_TEST(AddSquares, EveryInstructionSetFollowsTheDefinition) {
  const std::vector<TypeParam> x = normal_numbers<TypeParam>(2311);
  const std::vector<std::pair<int64_t, int64_t>> ranges{{0, 0},     {0, 1},     {0, 256},     {0, 257},     {256, 512},
                                                        {512, 513}, {0, 2311},  {1024, 2311}, {2304, 2311}, {2311, 2311},
                                                        {32, 96},   {96, 1056}, {255, 257}};
  for (const auto& [begin, end] : ranges) {
    ExactSum expected;
    for (int64_t block = begin / 256 * 256; block < end; block += 256) expected.add(reference_block(x, block, begin, end));
    for (const Isa isa : supported_isas()) {
      ExactSum sum;
      add_squares(tensor_of(x), begin, end, sum, isa);
      EXPECT_EQ(sum.value(), expected.value()) << isa_name(isa) << " [" << begin << ", " << end << ")";
    }
  }
}

TYPED_TEST(AddSquares, TeamsOfAGpuGiveTheSameBits) {
  std::vector<TypeParam> x = normal_numbers<TypeParam>((int64_t{4096} + 3) * 256 + 77);
  for (size_t i = 0; i < x.size(); i += 7)
    x[i] = static_cast<TypeParam>(std::ldexp(static_cast<double>(x[i]), static_cast<int>(i % 61) - 40));
  const at::Tensor flat = tensor_of(x);
  const std::vector<std::pair<int64_t, int64_t>> ranges{{0, 0},
                                                        {0, 1},
                                                        {0, 256},
                                                        {0, 257},
                                                        {256, 512},
                                                        {32, 96},
                                                        {96, 1056},
                                                        {255, 257},
                                                        {77, 300},
                                                        {0, flat.numel()},
                                                        {777, flat.numel() - 1}};
  for (const auto& [begin, end] : ranges) {
    ExactSum expected;
    add_squares(flat, begin, end, expected);
    const auto sum = squares_of_teams(flat.const_data_ptr<TypeParam>(), begin, end);
    EXPECT_TRUE(at::equal(sum.state(), expected.state())) << "[" << begin << ", " << end << ")";
  }
}

TYPED_TEST(AddSquares, TeamsOfAGpuCountWhatIsNotFinite) {
  using Limits = std::numeric_limits<TypeParam>;
  for (const double special :
       {kInfinity, -kInfinity, std::nan(""), static_cast<double>(Limits::max()), static_cast<double>(Limits::denorm_min())}) {
    at::Tensor flat = at::ones({701}, c10::CppTypeToScalarType<TypeParam>::value);
    flat[300] = special;
    ExactSum expected;
    add_squares(flat, 0, 701, expected);
    const auto sum = squares_of_teams(flat.const_data_ptr<TypeParam>(), 0, 701);
    EXPECT_TRUE(at::equal(sum.state(), expected.state())) << special;
  }
}

TYPED_TEST(AddSquares, CutsAtBlocksChangeNoBit) {
  const at::Tensor flat = tensor_of(normal_numbers<TypeParam>(10 * 256 + 77));
  ExactSum whole;
  add_squares(flat, 0, flat.numel(), whole);
  for (int64_t cut = 0; cut <= flat.numel(); cut += 256) {
    ExactSum low, high;
    add_squares(flat, 0, cut, low);
    // The other rank has its part in another buffer, padded with zeros.
    const at::Tensor part = at::cat({flat.slice(0, cut), at::zeros({51}, flat.options())});
    add_squares(part, 0, part.numel(), high);
    low.merge(high);
    EXPECT_EQ(low.value(), whole.value()) << "cut at " << cut;
  }
}

TYPED_TEST(AddSquares, IsNearTheExactSum) {
  const std::vector<TypeParam> x = normal_numbers<TypeParam>(100003);
  ExactSum exact, sum;
  const at::Tensor flat = tensor_of(x);
  for (const TypeParam v : x) {
    // Adds the square of a double as two doubles, so that the expected sum has no rounding error.
    const auto wide = static_cast<double>(v);
    exact.add(wide * wide);
    exact.add(std::fma(wide, wide, -(wide * wide)));
  }
  add_squares(flat, 0, flat.numel(), sum);
  // All terms are positive. Roundings: at most 1 in the square, 15 in a lane, 4 in the tree and 1 at the end.
  EXPECT_LE(std::fabs(sum.value() - exact.value()), 21 * 0x1p-53 * exact.value());
}

TYPED_TEST(AddSquares, OneBadElementIsSeen) {
  for (const double bad : {kInfinity, -kInfinity, std::nan("")}) {
    for (const int64_t place : {0, 255, 256, 700}) {
      at::Tensor flat = at::ones({701}, c10::CppTypeToScalarType<TypeParam>::value);
      flat[place] = bad;
      for (const Isa isa : supported_isas()) {
        ExactSum sum;
        add_squares(flat, 0, 701, sum, isa);
        EXPECT_FALSE(sum.is_finite()) << bad << " at " << place << " " << isa_name(isa);
      }
    }
  }
}

TYPED_TEST(AddSquares, DenormalAndHugeElements) {
  using Limits = std::numeric_limits<TypeParam>;
  constexpr bool kIsDouble = std::is_same_v<TypeParam, double>;
  const auto root = static_cast<TypeParam>(kIsDouble ? 0x1p-537 : static_cast<double>(Limits::denorm_min()));
  ExactSum tiny;
  add_squares(tensor_of(std::vector<TypeParam>(300, root)), 0, 300, tiny);
  EXPECT_EQ(tiny.value(), 300 * (static_cast<double>(root) * static_cast<double>(root)));
  EXPECT_GT(tiny.value(), 0);
  ExactSum huge;
  add_squares(tensor_of(std::vector<TypeParam>(300, Limits::max())), 0, 300, huge);
  // The square of the largest double overflows.
  const auto most = static_cast<double>(Limits::max());
  EXPECT_EQ(huge.value(), kIsDouble ? kInfinity : 300 * (most * most));
  EXPECT_EQ(huge.is_finite(), !kIsDouble);
}

TEST(AddSquaresErrors, NameWhatIsWrong) {
  ExactSum sum;
  const auto complaint = [&](const at::Tensor& flat, int64_t begin, int64_t end) {
    try {
      add_squares(flat, begin, end, sum);
    } catch (const Misuse& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_NE(complaint(at::zeros({4}), 2, 5).find("[2, 5)"), std::string::npos);
  EXPECT_NE(complaint(at::zeros({4}), -1, 2).find("[-1, 2)"), std::string::npos);
  EXPECT_NE(complaint(at::zeros({4}), 3, 2).find("[3, 2)"), std::string::npos);
  EXPECT_NE(complaint(at::zeros({4}, at::kInt), 0, 4).find("int32"), std::string::npos);
  EXPECT_NE(complaint(at::zeros({4, 2}), 0, 4).find("flat"), std::string::npos);
  EXPECT_NE(complaint(at::empty({4}, at::kMeta), 0, 4).find("host memory"), std::string::npos);
  EXPECT_THROW(squares_on_device(at::zeros({4}), 2, 5), Misuse);
  EXPECT_THROW(squares_on_device(at::zeros({4}, at::kInt), 0, 4), Misuse);
  EXPECT_THROW(squares_on_device(at::zeros({4}), 0, 4), Misuse);
  EXPECT_NE(complaint(at::zeros({4, 2}).t().select(0, 0), 0, 4).find("contiguous"), std::string::npos);
  EXPECT_NE(complaint(at::Tensor(), 0, 0).find("undefined"), std::string::npos);
}

}  // namespace
}  // namespace zt
