#include "schedules.h"

#include <gtest/gtest.h>

#include <cmath>

#include "support.h"
#include "support/golden.h"

namespace zt::optim::test {
namespace {

constexpr double kBase = 0.4;

// Compares with PyTorch, which computes most rates from the previous one, with at most 8 operations per step that round relative
// to the base.
void expect_golden(const Schedule& schedule, const std::string& name) {
  const at::Tensor expected = zt::test::golden("optim_rates").at(name);
  ASSERT_EQ(expected.numel(), 60);
  for (int64_t step = 0; step < expected.numel(); ++step) {
    const double limit = 8 * static_cast<double>(step + 1) * 0x1p-53 * kBase;
    EXPECT_NEAR(schedule.lr(step, kBase), expected[step].item<double>(), limit) << name << " step " << step;
  }
}

TEST(Schedules, WarmupLinear) {
  const auto schedule = make_warmup_linear(Value::Table{{"warmup", 10}, {"total", 40}, {"min_ratio", 0.1}});
  EXPECT_EQ(schedule->kind(), "warmup_linear");
  expect_golden(*schedule, "warmup_linear");
  EXPECT_EQ(schedule->lr(10, 1), 1);
  EXPECT_DOUBLE_EQ(schedule->lr(0, 1), 1.0 / 11);
  EXPECT_DOUBLE_EQ(schedule->lr(1000000, 1), 0.1);
}

TEST(Schedules, WarmupCosine) {
  expect_golden(*make_warmup_cosine(Value::Table{{"warmup", 8}, {"total", 60}, {"min_ratio", 0.1}, {"start_ratio", 0.25}}),
                "warmup_cosine");
  const auto cosine = make_warmup_cosine(Value::Table{{"total", 60}});
  expect_golden(*cosine, "cosine");
  EXPECT_EQ(cosine->lr(0, 1), 1);
  EXPECT_EQ(cosine->lr(60, 1), 0);
  EXPECT_EQ(cosine->lr(61, 1), 0);
  // DeepSpeed's schedule starts at zero.
  EXPECT_EQ(make_warmup_cosine(Value::Table{{"warmup", 8}, {"total", 60}, {"start_ratio", 0}})->lr(0, 1), 0);
}

TEST(Schedules, OneCycle) {
  for (const std::string strategy : {"cos", "linear"}) {
    for (const bool three : {false, true}) {
      const auto schedule = make_one_cycle(Value::Table{{"total", 61},
                                                        {"pct_start", 0.35},
                                                        {"anneal_strategy", strategy},
                                                        {"div_factor", 20},
                                                        {"final_div_factor", 500},
                                                        {"three_phase", three}});
      expect_golden(*schedule, "one_cycle_" + strategy + (three ? "_3" : "_2"));
      EXPECT_DOUBLE_EQ(schedule->lr(60, 1), 1.0 / 20 / 500);
      EXPECT_DOUBLE_EQ(schedule->lr(1000, 1), 1.0 / 20 / 500);
    }
  }
}

TEST(Schedules, OneCycleAtItsLimits) {
  for (const int64_t total : {1, 2, 3}) {
    for (const double pct : {0.0, 0.5, 1.0}) {
      const auto schedule = make_one_cycle(Value::Table{{"total", total}, {"pct_start", pct}});
      for (int64_t step = 0; step < 5; ++step) {
        const double rate = schedule->lr(step, 1);
        EXPECT_TRUE(rate > 0 && rate <= 1) << total << " " << pct << " " << step << ": " << rate;
      }
    }
  }
}

TEST(Schedules, StepDecay) {
  const auto schedule = make_step_decay(Value::Table{{"step_size", 7}, {"gamma", 0.5}});
  expect_golden(*schedule, "step_decay");
  EXPECT_EQ(schedule->lr(6, 1), 1);
  EXPECT_EQ(schedule->lr(7, 1), 0.5);
}

TEST(Schedules, RangeTest) {
  const auto smooth = make_lr_range_test(Value::Table{{"step_size", 10}, {"step_rate", 2}});
  const auto stairs = make_lr_range_test(Value::Table{{"step_size", 10}, {"step_rate", 2}, {"staircase", true}});
  for (int64_t step = 0; step < 100; ++step) {
    const double exact = kBase + kBase * 2 * static_cast<double>(step) / 10;
    EXPECT_NEAR(smooth->lr(step, kBase), exact, 4 * 0x1p-53 * exact);
    EXPECT_EQ(stairs->lr(step, kBase), kBase * (1 + 2 * static_cast<double>(step / 10)));
  }
  EXPECT_EQ(make_lr_range_test(Value())->lr(2000, 1), 2);
}

TEST(Schedules, Constant) {
  for (const int64_t step : {0, 1, 1000000}) EXPECT_EQ(make_constant(Value())->lr(step, kBase), kBase);
}

TEST(Schedules, ErrorsNameWhatIsWrong) {
  const auto error = [](auto make, Value::Table options) { return complaint([&] { make(options); }); };
  EXPECT_NE(error(make_constant, {{"total", 3}}).find("optim.constant: unknown option 'total'"), std::string::npos);
  EXPECT_NE(error(make_warmup_cosine, {{"warmup", 3}}).find("'total' is missing"), std::string::npos);
  EXPECT_NE(error(make_warmup_cosine, {{"warmup", 3}, {"total", 3}}).find("total (3) must be above warmup (3)"),
            std::string::npos);
  EXPECT_NE(error(make_warmup_linear, {{"total", 3}, {"min_ratio", 1.5}}).find("optim.warmup_linear.min_ratio"),
            std::string::npos);
  EXPECT_NE(error(make_one_cycle, {{"total", 3}, {"anneal_strategy", "cosine"}}).find("'cos', 'linear'"), std::string::npos);
  EXPECT_NE(error(make_one_cycle, {{"total", 9}, {"pct_start", 0.6}, {"three_phase", true}}).find("pct_start up to 0.5"),
            std::string::npos);
  EXPECT_NE(error(make_step_decay, {{"step_size", 0}}).find("optim.step_decay.step_size must be at least 1"), std::string::npos);
  EXPECT_NE(complaint([] { make_constant(Value())->lr(-1, 1); }).find("steps count from 0"), std::string::npos);
}

}  // namespace
}  // namespace zt::optim::test
