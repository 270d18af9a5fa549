// Tests the numbers that the result of a step shows of a router.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "routing/losses.h"

namespace zt::test {
namespace {

Stats sums_of(std::vector<double> load) {
  const auto number = [](double value) { return at::tensor({value}, at::kDouble); };
  return {{"load", at::tensor(load, at::kDouble)},
          {"dropped", number(2)},
          {"tokens", number(4)},
          {"entropy", number(3)},
          {"logits", number(36)}};
}

double shown(const Stats& report, const char* name) {
  EXPECT_EQ(report.at(name).dim(), 0) << name;
  return report.at(name).item<double>();
}

TEST(RoutingReport, FollowsFromTheSums) {
  const Stats report = moe::routing_report(sums_of({5, 0, 1, 2}));
  EXPECT_TRUE(report.at("load").equal(at::tensor({5.0, 0.0, 1.0, 2.0}, at::kDouble)));
  EXPECT_EQ(shown(report, "load_max_over_mean"), 2.5);
  EXPECT_EQ(shown(report, "load_cv"), std::sqrt((9.0 + 4 + 1 + 0) / 4) / 2);
  EXPECT_EQ(shown(report, "idle_experts"), 1);
  EXPECT_EQ(shown(report, "dropped_share"), 0.25);
  EXPECT_EQ(shown(report, "entropy"), 0.75);
  EXPECT_EQ(shown(report, "logit_rms"), 3);
  EXPECT_FALSE(report.contains("bias_norm"));
}

TEST(RoutingReport, HasNoQuotientsByZero) {
  Stats sums = sums_of({0, 0});
  sums["tokens"].zero_();
  sums["bias"] = at::tensor({0.0}, at::kDouble);
  const Stats report = moe::routing_report(sums);
  for (const char* name : {"load_max_over_mean", "load_cv", "dropped_share", "entropy", "logit_rms", "bias_norm"})
    EXPECT_EQ(shown(report, name), 0) << name;
  EXPECT_EQ(shown(report, "idle_experts"), 2);
  EXPECT_TRUE(moe::routing_report({}).empty());
}

}  // namespace
}  // namespace zt::test
