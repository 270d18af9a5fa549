// The sum without rounding of the gradient norm.
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

#include "support/golden.h"
#include "zt/base/error.h"
#include "zt/execute/gradient_norm.h"

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

}  // namespace
}  // namespace zt
