#include "zt/random/rng.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <numbers>
#include <random>

#include "random/box_muller.h"
#include "zt/base/hash.h"

namespace zt {
namespace {

constexpr uint64_t kTurn = uint64_t{1} << 53;  // a full turn of the angle in units of 2^-53
// First elements of the tested ranges: the start of a row, inside a counter's numbers, around the counter 2^32, and far out.
const int64_t kPlaces[] = {0, 1, 2, 3, 5, 1022, (int64_t{1} << 33) - 77, (int64_t{1} << 34) - 77, (int64_t{1} << 62) + 3};
const uint64_t kRows[] = {0, 1, 0x123456789, ~uint64_t{0}};
constexpr int64_t kLength = 611;

// Returns sin(2 pi part / 2^53). The symmetries of the sine reduce the angle to at most an eighth of a turn, exactly.
long double sine_of(uint64_t part) {
  const auto first_quarter = [](uint64_t rest) {
    const auto angle = [](uint64_t n) { return 2 * std::numbers::pi_v<long double> * static_cast<long double>(n) * 0x1p-53L; };
    return rest <= kTurn / 8 ? std::sin(angle(rest)) : std::cos(angle(kTurn / 4 - rest));
  };
  const uint64_t quarter = part / (kTurn / 4) % 4, rest = part % (kTurn / 4);
  const long double value = first_quarter(quarter % 2 == 0 ? rest : kTurn / 4 - rest);
  return quarter < 2 ? value : -value;
}

// Box-Muller by its definition: an even element takes the cosine branch, an odd element the sine branch.
long double branch(uint64_t a, uint64_t b, bool is_odd) {
  const long double radius = std::sqrt(-2 * std::log(static_cast<long double>(a + 1) * 0x1p-53L));
  return radius * sine_of(is_odd ? b : b + kTurn / 4);
}

long double normal_of(const Philox& stream, uint64_t row, int64_t i) {
  const Philox::Block words = stream.block(row, static_cast<uint64_t>(i / 2));
  const uint64_t a = (static_cast<uint64_t>(words[1]) << 32 | words[0]) >> 11;
  const uint64_t b = (static_cast<uint64_t>(words[3]) << 32 | words[2]) >> 11;
  return branch(a, b, i % 2 != 0);
}

// Returns the relative error in units of 2^-53, or 0 if both numbers are 0.
double error_of(double got, long double expected) {
  if (expected == 0) return got == 0 ? 0 : std::numeric_limits<double>::infinity();
  return static_cast<double>(std::fabs((static_cast<long double>(got) - expected) / expected) * 0x1p53L);
}
constexpr double kBound = 10;  // derived in box_muller.h

template <class T>
std::vector<T> filled(const Philox& stream, uint64_t row, int64_t first, int64_t count, Isa isa = best_isa()) {
  std::vector<T> out(count);
  if constexpr (std::is_same_v<T, float>) {
    stream.uniform(row, first, out, isa);
  } else {
    stream.normal(row, first, out, isa);
  }
  return out;
}

template <class T>
std::string bits_of(std::span<const T> numbers) {
  return {reinterpret_cast<const char*>(numbers.data()), numbers.size_bytes()};
}

// The test vectors of Random123, the authors' library.
TEST(Philox, MakesThePublishedBlocks) {
  EXPECT_EQ(Philox(0).block(0, 0), (Philox::Block{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(Philox(~uint64_t{0}).block(~uint64_t{0}, ~uint64_t{0}),
            (Philox::Block{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(Philox(0x299f31d0a4093822).block(0x0370734413198a2e, 0x85a308d3243f6a88),
            (Philox::Block{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Uniform, EveryInstructionSetFollowsTheDefinition) {
  const Philox stream(0x0123456789abcdef);
  for (const uint64_t row : kRows) {
    for (const int64_t first : kPlaces) {
      std::vector<float> expected;
      for (int64_t i = first; i < first + kLength; ++i) {
        expected.push_back(static_cast<float>(stream.block(row, static_cast<uint64_t>(i / 4))[i % 4] >> 8) * 0x1p-24F);
      }
      for (const Isa isa : supported_isas()) {
        EXPECT_EQ(filled<float>(stream, row, first, kLength, isa), expected)
            << isa_name(isa) << " row " << row << " at " << first;
      }
    }
  }
}

TEST(Normal, EveryInstructionSetFollowsTheDefinition) {
  const Philox stream(0x0123456789abcdef);
  for (const uint64_t row : kRows) {
    for (const int64_t first : kPlaces) {
      const std::vector<double> plain = filled<double>(stream, row, first, kLength, Isa::plain);
      for (int64_t j = 0; j < kLength; ++j) {
        EXPECT_LE(error_of(plain[j], normal_of(stream, row, first + j)), kBound) << "row " << row << " element " << first + j;
      }
      for (const Isa isa : supported_isas()) {
        EXPECT_EQ(bits_of<double>(filled<double>(stream, row, first, kLength, isa)), bits_of<double>(plain))
            << isa_name(isa) << " row " << row << " at " << first;
      }
    }
  }
}

TEST(Normal, IsNearTheDefinitionOverMillions) {
  constexpr int64_t kCount = 3'000'000;
  const Philox stream(7);
  const std::vector<double> got = filled<double>(stream, 3, 0, kCount);
  double worst = 0;
  for (int64_t i = 0; i < kCount; ++i) worst = std::max(worst, error_of(got[i], normal_of(stream, 3, i)));
  EXPECT_LE(worst, kBound);
  for (const Isa isa : supported_isas()) EXPECT_EQ(filled<double>(stream, 3, 0, kCount, isa), got) << isa_name(isa);
}

// Checks inputs that random counters practically never give: the ends of both uniforms, uniforms of every magnitude, the borders
// of the octants, and the numbers at which the logarithm's reduction changes the power of two.
TEST(Normal, PairsAtTheBordersAreNearTheDefinition) {
  std::vector<uint64_t> radii{0, 1, 2, 3, kTurn - 1, kTurn - 2, kTurn - 3}, angles;
  for (int bit = 2; bit <= 53; ++bit) {
    const auto border = static_cast<uint64_t>(std::ldexp(std::numbers::sqrt2 / 2, bit));
    for (uint64_t n = border - 1; n <= border + 2; ++n) radii.push_back(n);
    for (const uint64_t n : {kTurn - 1, kTurn - 2, kTurn}) radii.push_back((n >> (53 - bit)) - 1);
  }
  for (uint64_t octant = 0; octant <= 8; ++octant) {
    for (int64_t step = -2; step <= 2; ++step) angles.push_back((octant * (kTurn / 8) + step) % kTurn);
  }
  std::mt19937_64 random(5);
  for (int i = 0; i < 200; ++i) {
    radii.push_back(random() >> (11 + i % 53));
    angles.push_back(random() >> (11 + i % 53));
  }
  for (const uint64_t a : radii) {
    for (const uint64_t b : angles) {
      double even, odd;
      box_muller::pair(a, b, even, odd);
      EXPECT_LE(error_of(even, branch(a, b, false)), kBound) << a << " " << b;
      EXPECT_LE(error_of(odd, branch(a, b, true)), kBound) << a << " " << b;
    }
  }
}

// The bits must be the same on every processor and with every compiler.
TEST(Normal, HasTheseBits) {
  const std::vector<double> numbers = filled<double>(Philox(1), 2, 0, 1 << 16);
  EXPECT_EQ(stable_hash(bits_of<double>(numbers)), 0x955f946f719f4984);
}

template <class T>
class Fill : public testing::Test {};
using NumberTypes = testing::Types<float, double>;
TYPED_TEST_SUITE(Fill, NumberTypes);

TYPED_TEST(Fill, AnyCutGivesTheSameNumbersAndTouchesNothingElse) {
  const Philox stream(11);
  const int64_t first = (int64_t{1} << 34) - 5, count = 1500;
  const std::vector<TypeParam> whole = filled<TypeParam>(stream, 1, first, count);
  std::mt19937_64 random(3);
  for (int trial = 0; trial < 2000; ++trial) {
    const auto begin = static_cast<int64_t>(random() % count);
    const auto length = static_cast<int64_t>(random() % (trial % 2 == 0 ? 9 : count)) % (count - begin + 1);
    const Isa isa = supported_isas()[trial % supported_isas().size()];
    std::vector<TypeParam> got(count, -9);
    const auto part = std::span(got).subspan(begin, length);
    if constexpr (std::is_same_v<TypeParam, float>) {
      stream.uniform(1, first + begin, part, isa);
    } else {
      stream.normal(1, first + begin, part, isa);
    }
    std::vector<TypeParam> expected(count, -9);
    std::copy_n(whole.begin() + begin, length, expected.begin() + begin);
    ASSERT_EQ(got, expected) << isa_name(isa) << " [" << begin << ", " << begin + length << ")";
  }
}

TYPED_TEST(Fill, RowsAndKeysDiffer) {
  const auto numbers = [](uint64_t key, uint64_t row) { return filled<TypeParam>(Philox(key), row, 0, 64); };
  const std::vector<TypeParam> one = numbers(1, 0);
  for (const auto& other : {numbers(2, 0), numbers(1ULL << 32 | 1, 0), numbers(1, 1), numbers(1, 1ULL << 32)}) {
    for (size_t i = 0; i < one.size(); ++i) EXPECT_NE(one[i], other[i]);
  }
}

constexpr int kSamples = 1'000'000;

// Returns the Kolmogorov-Smirnov statistic: the largest distance of the numbers' distribution from `cdf`, times the square root
// of their count. It is above 1.95 for one seed in 1000.
template <class T, class Cdf>
double kolmogorov_smirnov(std::vector<T> numbers, const Cdf& cdf) {
  std::sort(numbers.begin(), numbers.end());
  const auto n = static_cast<double>(numbers.size());
  double distance = 0;
  for (size_t i = 0; i < numbers.size(); ++i) {
    const double expected = cdf(static_cast<double>(numbers[i]));
    distance = std::max({distance, expected - static_cast<double>(i) / n, static_cast<double>(i + 1) / n - expected});
  }
  return distance * std::sqrt(n);
}

TEST(Uniform, IsUniform) {
  EXPECT_LE(kolmogorov_smirnov(filled<float>(Philox(5), 0, 0, kSamples), [](double x) { return x; }), 1.95);
}

TEST(Normal, IsNormal) {
  const std::vector<double> numbers = filled<double>(Philox(5), 0, 0, kSamples);
  EXPECT_LE(kolmogorov_smirnov(numbers, [](double x) { return std::erfc(-x / std::numbers::sqrt2) / 2; }), 1.95);
  double sum[5] = {}, product = 0;
  for (size_t i = 0; i < numbers.size(); ++i) {
    for (int power = 1; power <= 4; ++power) sum[power] += std::pow(numbers[i], power);
    if (i % 2 == 0) product += numbers[i] * numbers[i + 1];
  }
  // Bounds of five standard deviations: the variances of x, x^2, x^3 and x^4 are 1, 2, 15 and 96, that of the product of a pair
  // is 1.
  const double root = std::sqrt(kSamples);
  EXPECT_NEAR(sum[1] / kSamples, 0, 5 / root);
  EXPECT_NEAR(sum[2] / kSamples, 1, 5 * std::sqrt(2) / root);
  EXPECT_NEAR(sum[3] / kSamples, 0, 5 * std::sqrt(15) / root);
  EXPECT_NEAR(sum[4] / kSamples, 3, 5 * std::sqrt(96) / root);
  EXPECT_NEAR(product / (kSamples / 2), 0, 5 / std::sqrt(kSamples / 2));
}

}  // namespace
}  // namespace zt
