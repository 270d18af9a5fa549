// How much better than expected the tokens of sampled answers were, in float64. Pure functions.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace zt::rlhf {

// Returns of the tokens of one answer by generalised advantage estimation (Schulman et al. 2016), backwards from the last token,
// after which the value is 0: with delta = reward + gamma * next value - value, an advantage is delta + gamma * lambda * the next
// advantage. All spans have a number per token.
void estimate_advantages(std::span<const double> rewards, std::span<const double> values, double gamma, double lambda,
                         std::span<double> advantages);

// The sums of rewards from each token to the end, the k-th after it times gamma^k.
void sum_rewards(std::span<const double> rewards, double gamma, std::span<double> sums);

enum class Baseline : uint8_t {
  mean,    // of the group
  others,  // the mean of the others of the group
};
enum class AdvantageScale : uint8_t { none, group, batch };
constexpr auto words_of(AdvantageScale) {
  return std::array{"none", "group", "batch"};
}

// This is added to a standard deviation before a division by it.
constexpr double kLeastDeviation = 1e-4;

// Returns the advantages of answers, by their rewards and the numbers of their groups: the reward minus the baseline. With
// `group` they are divided by the standard deviation of the rewards of the group, with `batch` by that of all rewards, with n -
// 1, plus kLeastDeviation. Answers of a group with equal rewards, or alone in one, get exactly 0. `equal`, if given, becomes the
// number of such groups.
std::vector<double> group_advantages(std::span<const double> rewards, std::span<const int64_t> groups, Baseline baseline,
                                     AdvantageScale scale, int64_t* equal = nullptr);

// Replaces values by (value - mean) / (standard deviation with n - 1 + 1e-8); fewer than two values, and equal ones, become 0.
void whiten(std::span<double> values);

}  // namespace zt::rlhf
