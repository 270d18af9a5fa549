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
#include "support/golden.h"
#include "zt/base/error.h"

namespace zt {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kMax = std::numeric_limits<double>::max();
constexpr double kLeast = std::numeric_limits<double>::denorm_min();

double sum_of(const std::vector<double>& numbers) {
  ExactSum sum;
  for (const double x : numbers) sum.add(x);
  return sum.value();
}

// Returns numbers of both signs over the whole range of exponents, including denormal ones.
std::vector<double> wide_numbers(int count, int seed) {
  std::mt19937_64 random(seed);
  std::vector<double> out;
  while (static_cast<int>(out.size()) < count) {
    const double x = std::bit_cast<double>(random());
    if (std::isfinite(x)) out.push_back(x);
  }
  return out;
}

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

TEST(ExactSum, EmptyIsZero) {
  EXPECT_EQ(sum_of({}), 0);
  EXPECT_EQ(sum_of({0.0, -0.0}), 0);
}

TEST(ExactSum, OneNumberComesBack) {
  for (const double x : {1.0, -1.0, 0.1, kMax, -kMax, kLeast, -kLeast, 0x1p-1022, 0x1.fffffffffffffp-1023, 0x1p-1023}) {
    EXPECT_EQ(sum_of({x}), x);
  }
  for (const double x : wide_numbers(2000, 1)) EXPECT_EQ(sum_of({x}), x);
}

TEST(ExactSum, NothingIsLostToCancellation) {
  EXPECT_EQ(sum_of({kMax, kLeast, -kMax}), kLeast);
  EXPECT_EQ(sum_of({1e300, 1.0, -1e300, 1e-300, -1.0}), 1e-300);
  EXPECT_EQ(sum_of({kMax, kMax, -kMax}), kMax);  // the sum overflows double in between
  EXPECT_EQ(sum_of({-kMax, -kMax, kMax, -kLeast, kLeast}), -kMax);
}

TEST(ExactSum, RoundsOnceToNearestEven) {
  const double ulp = 0x1p-52;
  EXPECT_EQ(sum_of({1.0, ulp / 2}), 1.0);                  // a tie goes to even
  EXPECT_EQ(sum_of({1.0 + ulp, ulp / 2}), 1.0 + 2 * ulp);  // a tie goes to even, upwards
  EXPECT_EQ(sum_of({1.0, ulp / 2, kLeast}), 1.0 + ulp);    // just above a tie: the difference is 1000 bits further down
  EXPECT_EQ(sum_of({1.0, ulp / 2, -kLeast}), 1.0);         // just below it
  EXPECT_EQ(sum_of({-1.0, -ulp / 2, -kLeast}), -1.0 - ulp);
  EXPECT_EQ(sum_of({kMax, 0x1p969}), kMax);                     // below half an ulp of the largest number
  EXPECT_EQ(sum_of({kMax, 0x1p970}), kInf);                     // half an ulp: rounding to even overflows
  EXPECT_EQ(sum_of({0x1p-1022, -kLeast}), 0x1p-1022 - kLeast);  // denormal results are exact
}

TEST(ExactSum, AgreesWithPythonsFsum) {
  const auto golden = test::golden("optim_sums");
  const at::Tensor expected = golden.at("sums");
  for (int64_t row = 0; row < expected.numel(); ++row) {
    const at::Tensor numbers = golden.at("numbers")[row].contiguous();
    const std::span<const double> values(numbers.const_data_ptr<double>(), numbers.numel());
    EXPECT_EQ(sum_of({values.begin(), values.end()}), expected.const_data_ptr<double>()[row]) << "row " << row;
  }
}

TEST(ExactSum, OrderAndGroupingDoNotMatter) {
  std::vector<double> numbers = wide_numbers(3001, 2);
  const double expected = sum_of(numbers);
  std::mt19937_64 random(3);
  for (int trial = 0; trial < 5; ++trial) {
    std::shuffle(numbers.begin(), numbers.end(), random);
    EXPECT_EQ(sum_of(numbers), expected);
    ExactSum parts[4], whole;
    for (size_t i = 0; i < numbers.size(); ++i) parts[i * 4 / numbers.size()].add(numbers[i]);
    for (const ExactSum& part : parts) whole.merge(part);
    EXPECT_EQ(whole.value(), expected);
    at::Tensor state = parts[0].state();
    for (int i = 1; i < 4; ++i) state += parts[i].state();
    EXPECT_EQ(ExactSum::from_state(state).value(), expected);
  }
}

TEST(ExactSum, StatesOfManyRanksAdd) {
  ExactSum one;
  for (int i = 0; i < 1000; ++i) one.add(-0.1);
  const at::Tensor state = one.state() * 1000000;  // a million ranks with the same state
  EXPECT_EQ(ExactSum::from_state(state).value(), static_cast<double>(-1e9L * static_cast<long double>(0.1)));
}

TEST(ExactSum, NonFiniteIsKept) {
  EXPECT_EQ(sum_of({1.0, kInf}), kInf);
  EXPECT_EQ(sum_of({-kInf, 1.0, -kInf}), -kInf);
  EXPECT_TRUE(std::isnan(sum_of({kInf, -kInf})));
  EXPECT_TRUE(std::isnan(sum_of({std::nan(""), kInf})));
  ExactSum finite, broken;
  finite.add(kMax);
  finite.add(kMax);
  EXPECT_TRUE(finite.is_finite());  // the exact sum is finite, though its value rounds to infinity
  EXPECT_EQ(finite.value(), kInf);
  broken.add(-kInf);
  EXPECT_FALSE(broken.is_finite());
  finite.merge(ExactSum::from_state(broken.state()));
  EXPECT_FALSE(finite.is_finite());
  EXPECT_EQ(finite.value(), -kInf);
}

TEST(ExactSum, RefusesAStateOfAnotherShape) {
  EXPECT_THROW(ExactSum::from_state(at::zeros({3}, at::kLong)), Misuse);
  EXPECT_THROW(ExactSum::from_state(at::zeros({ExactWords::kCount}, at::kInt)), Misuse);
  EXPECT_THROW(ExactSum::from_state(at::Tensor()), Misuse);
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
       {kInf, -kInf, std::nan(""), static_cast<double>(Limits::max()), static_cast<double>(Limits::denorm_min())}) {
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
  for (const double bad : {kInf, -kInf, std::nan("")}) {
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
  EXPECT_EQ(huge.value(), kIsDouble ? kInf : 300 * (most * most));
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
