#include "stream/permutation.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <vector>

namespace zt::data {

namespace {

std::vector<int64_t> all(int64_t n, uint64_t key) {
  const Permutation permutation(n, Philox(key));
  std::vector<int64_t> places;
  for (int64_t i = 0; i < n; ++i) places.push_back(permutation(i));
  return places;
}

}  // namespace

TEST(Permutation, IsABijection) {
  std::vector<int64_t> sizes{1000, 1023, 1024, 1025, 65537};
  for (int64_t n = 1; n <= 130; ++n) sizes.push_back(n);
  for (const int64_t n : sizes) {
    const auto places = all(n, 42);
    const std::set<int64_t> distinct(places.begin(), places.end());
    EXPECT_EQ(distinct.size(), static_cast<size_t>(n));
    EXPECT_EQ(*distinct.begin(), 0);
    EXPECT_EQ(*distinct.rbegin(), n - 1);
  }
}

TEST(Permutation, StaysInRangeForHugeNumbers) {
  for (const int64_t n : {int64_t{1} << 40, (int64_t{1} << 40) + 1, int64_t{1} << 62}) {
    const Permutation permutation(n, Philox(1));
    for (const int64_t i : {int64_t{0}, n / 2, n - 1}) {
      EXPECT_GE(permutation(i), 0);
      EXPECT_LT(permutation(i), n);
    }
  }
}

TEST(Permutation, DiffersByKey) {
  EXPECT_NE(all(1000, 1), all(1000, 2));
}

// Each of n values is equally likely to come first: a chi-square test over keys. With 9 degrees of freedom the statistic exceeds
// 33.7 with probability 1e-4. The keys are fixed, so the result is always the same.
TEST(Permutation, PutsEveryValueFirstEquallyOften) {
  constexpr int64_t kPlaces = 10, kKeys = 10000;
  std::vector<double> counts(kPlaces);
  for (uint64_t key = 0; key < kKeys; ++key) ++counts[static_cast<size_t>(Permutation(kPlaces, Philox(key))(0))];
  double statistic = 0;
  for (const double count : counts) statistic += std::pow(count - kKeys / kPlaces, 2) / (kKeys / kPlaces);
  EXPECT_LT(statistic, 33.7);
}

// In a random order about 2 of the n - 1 pairs of neighbours stay neighbours. Their number has a Poisson distribution, so 12 or
// more have a probability of about 1e-6.
TEST(Permutation, ScattersNeighbours) {
  const auto places = all(4096, 7);
  int kept = 0;
  for (size_t i = 1; i < places.size(); ++i) kept += std::abs(places[i] - places[i - 1]) == 1;
  EXPECT_LT(kept, 12);
}

}  // namespace zt::data
