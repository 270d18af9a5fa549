#include "stream/interleaving.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <random>
#include <set>

namespace zt::data {

namespace {

std::vector<size_t> turns_of(const Interleaving& turns, int64_t count) {
  std::vector<size_t> sources;
  for (int64_t g = 0; g < count; ++g) sources.push_back(turns.turn(g).source);
  return sources;
}

}  // namespace

// The bound is that of Tijdeman: less than one sample, for every number of sources and every g.
TEST(Interleaving, CountsStayWithinOneSampleOfTheWeights) {
  std::mt19937 random(3);
  for (int round = 0; round < 200; ++round) {
    std::vector<double> weights(1 + random() % 9);
    for (double& weight : weights) weight = std::pow((1 + random() % 1000) / 1000.0, 1 + random() % 4);
    const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
    const Interleaving turns(weights, round);
    std::vector<int64_t> given(weights.size());
    for (int64_t g = 0; g < 1500; ++g) {
      EXPECT_EQ(turns.given(g), given);
      const auto turn = turns.turn(g);
      EXPECT_EQ(turn.number, given[turn.source]++);
      for (size_t i = 0; i < weights.size(); ++i) {
        ASSERT_LT(std::abs(static_cast<double>(given[i]) - weights[i] / sum * static_cast<double>(g + 1)), 1) << "sample " << g;
      }
    }
  }
}

TEST(Interleaving, IsAFunctionOfTheNumber) {
  const Interleaving forwards({0.5, 0.2, 0.3}, 8), other({5, 2, 3}, 8);
  const int64_t far = 200'003;
  const auto expected = turns_of(forwards, 300);
  const auto at_far = forwards.given(far);
  EXPECT_EQ(std::accumulate(at_far.begin(), at_far.end(), int64_t{0}), far);
  EXPECT_EQ(other.given(far), at_far) << "weights are normalised";
  for (const int64_t g : {299, 0, 17, 200'000, 65'536, 65'535, 131'072, 16}) {
    const Interleaving fresh({0.5, 0.2, 0.3}, 8);
    EXPECT_EQ(forwards.turn(g).source, fresh.turn(g).source);
    EXPECT_EQ(forwards.given(g), fresh.given(g));
    if (g < 300) {
      EXPECT_EQ(forwards.turn(g).source, expected[static_cast<size_t>(g)]);
    }
  }
}

TEST(Interleaving, SeedsBeginDifferently) {
  std::set<std::vector<size_t>> beginnings;
  for (int64_t seed = 0; seed < 20; ++seed) beginnings.insert(turns_of(Interleaving({1, 1, 1}, seed), 3));
  EXPECT_GT(beginnings.size(), 3U);
  EXPECT_EQ(turns_of(Interleaving({1, 1, 1}, 4), 50), turns_of(Interleaving({1, 1, 1}, 4), 50));
  EXPECT_EQ(turns_of(Interleaving({3}, 4), 3), (std::vector<size_t>{0, 0, 0}));
}

}  // namespace zt::data
