#include "advantages/advantages.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

namespace zt::rlhf {
namespace {

using Numbers = std::vector<double>;

// Numbers from -2 to 2.
Numbers random_numbers(std::mt19937& random, size_t count) {
  std::uniform_real_distribution<double> draw(-2, 2);
  Numbers numbers(count);
  for (double& number : numbers) number = draw(random);
  return numbers;
}

void expect_near(const Numbers& got, const Numbers& wanted) {
  ASSERT_EQ(got.size(), wanted.size());
  for (size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], wanted[i], 1e-12 * std::max(1.0, std::abs(wanted[i]))) << i;
}

Numbers estimated(const Numbers& rewards, const Numbers& values, double gamma, double lambda) {
  Numbers advantages(rewards.size(), NAN);
  estimate_advantages(rewards, values, gamma, lambda, advantages);
  return advantages;
}

// The definition: sum over k of (gamma lambda)^k delta(t + k).
Numbers by_definition(const Numbers& rewards, const Numbers& values, double gamma, double lambda) {
  Numbers advantages(rewards.size());
  for (size_t t = 0; t < rewards.size(); ++t) {
    for (size_t k = t; k < rewards.size(); ++k) {
      const double next = k + 1 < values.size() ? values[k + 1] : 0;
      advantages[t] += std::pow(gamma * lambda, static_cast<double>(k - t)) * (rewards[k] + gamma * next - values[k]);
    }
  }
  return advantages;
}

TEST(EstimateAdvantages, AreTheSumsOfTheDefinition) {
  std::mt19937 random(3);
  for (const size_t count : {0U, 1U, 2U, 17U}) {
    const Numbers rewards = random_numbers(random, count), values = random_numbers(random, count);
    for (const double gamma : {0.0, 0.7, 1.0}) {
      for (const double lambda : {0.0, 0.95, 1.0})
        expect_near(estimated(rewards, values, gamma, lambda), by_definition(rewards, values, gamma, lambda));
    }
  }
}

TEST(EstimateAdvantages, WithLambdaOneAndZeroAreClosedForms) {
  const Numbers rewards{0.5, 0, -1, 2}, values{1, 2, 3, 4};
  EXPECT_EQ(estimated(rewards, values, 1, 1), (Numbers{1.5 - 1, 1 - 2, 1 - 3, 2 - 4}));  // what follows, minus the value
  EXPECT_EQ(estimated(rewards, values, 0.5, 0), (Numbers{0.5 + 1 - 1, 1.5 - 2, -1 + 2 - 3, 2 - 4}));  // one step ahead
  EXPECT_EQ(estimated({3}, {1}, 0.9, 0.9), (Numbers{2}));
}

TEST(SumRewards, AreDiscounted) {
  Numbers sums(3, NAN);
  sum_rewards(Numbers{1, 2, 4}, 0.5, sums);
  EXPECT_EQ(sums, (Numbers{3, 4, 4}));
  sum_rewards(Numbers{1, 2, 4}, 1, sums);
  EXPECT_EQ(sums, (Numbers{7, 6, 4}));
  sum_rewards(Numbers{1, 2, 4}, 0, sums);
  EXPECT_EQ(sums, (Numbers{1, 2, 4}));
}

// Slow: from the words of the header alone.
Numbers slow_groups(const Numbers& rewards, const std::vector<int64_t>& groups, Baseline baseline, AdvantageScale scale,
                    int64_t& equal) {
  const auto deviation = [](const Numbers& all) {
    double mean = 0, squares = 0;
    for (const double each : all) mean += each / static_cast<double>(all.size());
    for (const double each : all) squares += (each - mean) * (each - mean);
    return all.size() < 2 ? 0 : std::sqrt(squares / static_cast<double>(all.size() - 1));
  };
  Numbers advantages(rewards.size());
  equal = 0;
  for (size_t i = 0; i < rewards.size(); ++i) {
    Numbers own, others;
    bool are_equal = true, is_first = true;
    for (size_t k = 0; k < rewards.size(); ++k) {
      if (groups[k] != groups[i]) continue;
      own.push_back(rewards[k]);
      if (k != i) others.push_back(rewards[k]);
      are_equal = are_equal && rewards[k] == rewards[i];
      is_first = is_first && k >= i;
    }
    if (are_equal) {
      equal += is_first;
      continue;
    }
    const Numbers& compared = baseline == Baseline::mean ? own : others;
    double mean = 0;
    for (const double each : compared) mean += each / static_cast<double>(compared.size());
    const double divisor = scale == AdvantageScale::none ? 1 : deviation(scale == AdvantageScale::group ? own : rewards) + 1e-4;
    advantages[i] = (rewards[i] - mean) / divisor;
  }
  return advantages;
}

TEST(GroupAdvantages, AreThoseOfASlowReference) {
  std::mt19937 random(5);
  for (int round = 0; round < 200; ++round) {
    const size_t count = random() % 12;
    Numbers rewards = random_numbers(random, count);
    std::vector<int64_t> groups(count);
    for (size_t i = 0; i < count; ++i) {
      groups[i] = static_cast<int64_t>(random() % 4) * 1000 - 7;
      if (random() % 2) rewards[i] = static_cast<double>(random() % 2);
    }
    for (const Baseline baseline : {Baseline::mean, Baseline::others}) {
      for (const AdvantageScale scale : {AdvantageScale::none, AdvantageScale::group, AdvantageScale::batch}) {
        int64_t equal = -1, wanted_equal = -1;
        const Numbers wanted = slow_groups(rewards, groups, baseline, scale, wanted_equal);
        expect_near(group_advantages(rewards, groups, baseline, scale, &equal), wanted);
        EXPECT_EQ(equal, wanted_equal);
      }
    }
  }
}

TEST(GroupAdvantages, OfEqualRewardsAreExactlyZero) {
  const std::vector<int64_t> groups{4, 4, 4, 2, 9, 9};
  const Numbers rewards{0.1, 0.1, 0.1, 5, 0.3, 0.7};  // the mean of three times 0.1 is not 0.1 in float64
  for (const AdvantageScale scale : {AdvantageScale::none, AdvantageScale::group, AdvantageScale::batch}) {
    int64_t equal = 0;
    const Numbers advantages = group_advantages(rewards, groups, Baseline::mean, scale, &equal);
    EXPECT_EQ(Numbers(advantages.begin(), advantages.begin() + 4), Numbers(4, 0.0));
    EXPECT_LT(advantages[4], 0);
    EXPECT_EQ(equal, 2);
  }
}

TEST(Whiten, GivesMeanZeroAndDeviationOne) {
  std::mt19937 random(8);
  for (const size_t count : {2U, 3U, 100U}) {
    Numbers values = random_numbers(random, count);
    for (double& value : values) value = 1e3 + 5 * value;
    whiten(values);
    double mean = 0, squares = 0;
    for (const double value : values) mean += value;
    for (const double value : values) squares += value * value;
    EXPECT_NEAR(mean, 0, 1e-9);
    EXPECT_NEAR(squares / static_cast<double>(count - 1), 1, 1e-7);  // 1e-8 is added to the deviation
  }
  Numbers none, one{3}, equal{0.1, 0.1, 0.1};
  for (Numbers* values : {&none, &one, &equal}) {
    whiten(*values);
    for (const double value : *values) EXPECT_EQ(value, 0);
  }
}

}  // namespace
}  // namespace zt::rlhf
