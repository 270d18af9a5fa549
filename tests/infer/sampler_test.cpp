#include "sample/sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <limits>
#include <numeric>
#include <random>

#include "cutoff_case.h"

namespace zt::infer {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

class Sampling : public testing::Test {
 protected:
  int32_t draw(const SamplingOptions& options, double uniform) {
    return sampler_.sample(logits_, options, counts_, forbidden_, uniform).token;
  }
  std::vector<int32_t> kept(const SamplingOptions& options) {
    draw(options, 0.5);
    return sampler_.remaining();
  }

  Sampler sampler_;
  std::vector<double> logits_{std::log(0.1), std::log(0.4), std::log(0.2), std::log(0.3)};
  TokenCounts counts_;
  std::vector<int32_t> forbidden_;
};

using Tokens = std::vector<int32_t>;

TEST_F(Sampling, TakesTheFirstTokenWhoseSumIsLarger) {
  for (const auto& [uniform, token] :
       {std::pair{0.0, 0}, {0.09, 0}, {0.11, 1}, {0.49, 1}, {0.51, 2}, {0.69, 2}, {0.71, 3}, {0.9999, 3}})
    EXPECT_EQ(draw({}, uniform), token) << uniform;
}

TEST_F(Sampling, WithTemperatureZeroTakesTheFirstOfTheLikeliest) {
  EXPECT_EQ(draw({.temperature = 0}, 0.99), 1);
  logits_ = {1, 5, 5, 2};
  EXPECT_EQ(draw({.temperature = 0}, 0.99), 1);
  forbidden_ = {1};
  EXPECT_EQ(draw({.temperature = 0}, 0.99), 2);
}

TEST_F(Sampling, CutsOff) {
  EXPECT_EQ(kept({.top_k = 2}), (Tokens{1, 3}));
  EXPECT_EQ(kept({.top_p = 0.3}), (Tokens{1}));
  EXPECT_EQ(kept({.top_p = 0.41}), (Tokens{1, 3}));
  EXPECT_EQ(kept({.top_p = 0.71}), (Tokens{1, 2, 3}));
  EXPECT_EQ(kept({.min_p = 0.5 - 1e-9}), (Tokens{1, 2, 3}));
  EXPECT_EQ(kept({.min_p = 0.6}), (Tokens{1, 3}));
  EXPECT_EQ(kept({.top_k = 3, .top_p = 0.46}), (Tokens{1, 3})) << "0.4 / 0.9 is less than 0.46";
  EXPECT_EQ(kept({}), (Tokens{0, 1, 2, 3}));
  logits_ = {2, 1, 2, 2};
  EXPECT_EQ(kept({.top_k = 1}), (Tokens{0, 2, 3})) << "equal logits remain together";
  logits_ = {0, -kInfinity, 0, 0};
  EXPECT_EQ(kept({}), (Tokens{0, 2, 3}));
}

TEST_F(Sampling, ChangesLogits) {
  logits_ = {1, -1, 2, 0};
  counts_.add_prompt(Tokens{0, 1});
  counts_.add_answer(2);
  counts_.add_answer(2);
  EXPECT_EQ(draw({.repetition_penalty = 4, .temperature = 0}, 0), 2) << "2 / 4 is more than 1 / 4";
  EXPECT_EQ(draw({.repetition_penalty = 4, .presence_penalty = 0.3, .temperature = 0}, 0), 0);
  EXPECT_EQ(draw({.frequency_penalty = 0.6, .temperature = 0}, 0), 0);
  EXPECT_EQ(draw({.frequency_penalty = 0.4, .temperature = 0}, 0), 2);
  EXPECT_EQ(draw({.logit_bias = {{3, 2.5}}, .temperature = 0}, 0), 3);
  EXPECT_EQ(kept({.repetition_penalty = 4, .top_k = 3}), (Tokens{0, 2, 3})) << "-1 * 4 is the least";
}

TEST_F(Sampling, SaysTheProbabilityOfTheDraw) {
  EXPECT_NEAR(sampler_.sample(logits_, {.top_k = 2}, counts_, {}, 0).sampled_logprob, std::log(0.4 / 0.7), 1e-15);
  EXPECT_NEAR(sampler_.sample(logits_, {.temperature = 0.5}, counts_, {}, 0).sampled_logprob, std::log(0.01 / 0.3), 1e-15);
  EXPECT_EQ(sampler_.sample(logits_, {.temperature = 0}, counts_, {}, 0).sampled_logprob, 0);
  EXPECT_NEAR(log_sum_exp(logits_), 0, 1e-15);
  EXPECT_EQ(likeliest(logits_, 3), (Tokens{1, 3, 2}));
  EXPECT_EQ(likeliest(std::vector<double>{1, 2, 2}, 9), (Tokens{1, 2, 0}));
}

TEST_F(Sampling, NeedsAFiniteLargestLogit) {
  EXPECT_TRUE(can_sample(std::vector<double>{0, -kInfinity}));
  EXPECT_FALSE(can_sample(std::vector<double>{0, std::nan("")}));
  EXPECT_FALSE(can_sample(std::vector<double>{0, kInfinity}));
  EXPECT_FALSE(can_sample(std::vector<double>{-kInfinity, -kInfinity}));
}

// Returns what remains by the definition: the whole row is sorted.
Tokens remaining_by_sorting(const std::vector<double>& logits, const SamplingOptions& options) {
  Tokens order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::sort(order, [&](int32_t a, int32_t b) { return logits[static_cast<size_t>(a)] > logits[static_cast<size_t>(b)]; });
  if (options.top_k > 0) order.resize(std::min(order.size(), static_cast<size_t>(options.top_k)));
  const auto weight = [&](int32_t token) {
    return std::exp((logits[static_cast<size_t>(token)] - logits[static_cast<size_t>(order[0])]) / options.temperature);
  };
  double total = 0, before = 0;
  for (const int32_t token : order) total += weight(token);
  Tokens kept;
  for (const int32_t token : order) {
    if ((options.top_p == 1 || before < options.top_p * total) && weight(token) >= options.min_p) kept.push_back(token);
    before += weight(token);
  }
  std::ranges::sort(kept);
  return kept;
}

TEST_F(Sampling, KeepsWhatSortingKeeps) {
  std::mt19937_64 random(1);
  std::normal_distribution<double> normal(0, 3);
  std::uniform_real_distribution<double> uniform;
  for (int row = 0; row < 1000; ++row) {
    logits_.resize(1 + random() % 3000);
    for (double& logit : logits_) logit = normal(random);
    SamplingOptions options;
    options.temperature = 0.2 + uniform(random);
    if (random() % 2 == 0) options.top_k = 1 + static_cast<int64_t>(random() % 400);
    if (random() % 2 == 0) options.top_p = uniform(random);
    if (random() % 2 == 0) options.min_p = 0.2 * uniform(random);
    ASSERT_EQ(kept(options), remaining_by_sorting(logits_, options)) << row;
  }
}

TEST(Cutoffs, KeepWhatTransformersKeeps) {
  std::ifstream file(std::string(ZT_SOURCE_DIR) + "/tests/golden/cutoffs.json");
  const auto cases = nlohmann::json::parse(file);
  EXPECT_EQ(cases.size(), 200);
  for (const auto& row : cases) EXPECT_EQ(CutoffCase(row).kept(), row.at("kept").get<Tokens>()) << row;
}

// Pearson's test: of 31 sums of squares each has the mean 9, for 9 degrees of freedom, and is above 40 once in 10^5.
TEST_F(Sampling, DrawsWithTheProbabilities) {
  std::mt19937_64 random(7);
  std::uniform_real_distribution<double> uniform;
  std::normal_distribution<double> normal;
  for (int row = 0; row < 31; ++row) {
    logits_.resize(10);
    for (double& logit : logits_) logit = normal(random);
    const SamplingOptions options{.temperature = 0.5 + uniform(random)};
    std::vector<double> count(10), share(10);
    constexpr int kDraws = 100000;
    for (int i = 0; i < kDraws; ++i) ++count[static_cast<size_t>(draw(options, uniform(random)))];
    double sum = 0, squares = 0;
    for (size_t token = 0; token < 10; ++token) sum += share[token] = std::exp(logits_[token] / options.temperature);
    for (size_t token = 0; token < 10; ++token) {
      const double wanted = kDraws * share[token] / sum;
      squares += (count[token] - wanted) * (count[token] - wanted) / wanted;
    }
    EXPECT_LT(squares, 40) << row;
  }
}

}  // namespace
}  // namespace zt::infer
