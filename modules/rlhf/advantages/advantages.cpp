#include "advantages/advantages.h"

#include <algorithm>
#include <cmath>
#include <map>

namespace zt::rlhf {

namespace {

struct Moments {
  double mean = 0, deviation = 0;  // with n - 1; 0 for fewer than two values
  bool are_equal = true;
};

Moments moments_of(std::span<const double> values) {
  Moments result;
  if (values.empty()) return result;
  const auto [least, most] = std::ranges::minmax(values);
  result.are_equal = least == most;
  if (result.are_equal) {
    result.mean = least;
    return result;
  }
  const auto n = static_cast<double>(values.size());
  double sum = 0, squares = 0;
  for (const double value : values) sum += value;
  result.mean = sum / n;
  for (const double value : values) squares += (value - result.mean) * (value - result.mean);
  result.deviation = std::sqrt(squares / (n - 1));
  return result;
}

}  // namespace

void estimate_advantages(std::span<const double> rewards, std::span<const double> values, double gamma, double lambda,
                         std::span<double> advantages) {
  double next_value = 0, next_advantage = 0;
  for (size_t t = rewards.size(); t-- > 0;) {
    const double delta = rewards[t] + gamma * next_value - values[t];
    next_advantage = delta + gamma * lambda * next_advantage;
    advantages[t] = next_advantage;
    next_value = values[t];
  }
}

void sum_rewards(std::span<const double> rewards, double gamma, std::span<double> sums) {
  double next = 0;
  for (size_t t = rewards.size(); t-- > 0;) sums[t] = next = rewards[t] + gamma * next;
}

std::vector<double> group_advantages(std::span<const double> rewards, std::span<const int64_t> groups, Baseline baseline,
                                     AdvantageScale scale, int64_t* equal) {
  std::map<int64_t, std::vector<size_t>> members;
  for (size_t i = 0; i < groups.size(); ++i) members[groups[i]].push_back(i);
  const double of_batch = scale == AdvantageScale::batch ? moments_of(rewards).deviation : 0;
  std::vector<double> advantages(rewards.size());
  int64_t equal_groups = 0;
  for (const auto& [group, of_group] : members) {
    std::vector<double> own;
    for (const size_t i : of_group) own.push_back(rewards[i]);
    const Moments moments = moments_of(own);
    if (moments.are_equal) {
      ++equal_groups;
      continue;
    }
    const auto n = static_cast<double>(own.size());
    const double factor = baseline == Baseline::others ? n / (n - 1) : 1;  // R - mean of the others = n / (n - 1) (R - mean)
    const double divisor =
        scale == AdvantageScale::none ? 1 : (scale == AdvantageScale::group ? moments.deviation : of_batch) + kLeastDeviation;
    for (size_t i = 0; i < own.size(); ++i) advantages[of_group[i]] = factor * (own[i] - moments.mean) / divisor;
  }
  if (equal) *equal = equal_groups;
  return advantages;
}

void whiten(std::span<double> values) {
  const Moments moments = moments_of(values);
  for (double& value : values) value = moments.are_equal ? 0 : (value - moments.mean) / (moments.deviation + 1e-8);
}

}  // namespace zt::rlhf
