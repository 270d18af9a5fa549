// Compares the loss scale with the sequences of DeepSpeed 0.19.8's DynamicLossScaler, and checks its options and state.
#include "zt/model/loss_scale.h"

#include <gtest/gtest.h>

#include "support/message.h"
#include "zt/base/error.h"

namespace zt::test {
namespace {

struct Sequence {
  LossScaleOptions options;
  std::vector<double> scales;  // after each step of kOverflows
};

constexpr std::string_view kOverflows = "0010000110000000001111000000101000000000000011111111";

// The scales of DeepSpeed's class for kOverflows.
const std::vector<Sequence>& sequences() {
  static const std::vector<Sequence> all{
      {{.initial_scale_power = 4, .loss_scale_window = 3, .hysteresis = 2, .consecutive_hysteresis = false, .min_loss_scale = 1},
       {16, 16, 16, 16, 16, 16, 32, 32, 16, 16, 16, 16, 32, 32, 32, 64, 64, 64,  64,  32, 16, 8,  8, 8, 8, 16,
        16, 16, 16, 16, 8,  8,  8,  8,  16, 16, 16, 32, 32, 32, 64, 64, 64, 128, 128, 64, 32, 16, 8, 4, 2, 1}},
      {{.initial_scale_power = 4, .loss_scale_window = 3, .hysteresis = 2, .consecutive_hysteresis = true, .min_loss_scale = 1},
       {16, 16, 16, 16, 16, 16, 32, 32, 16, 16, 16, 16, 32, 32, 32,  64,  64,  64,  64,  32,  16, 8,  8,  8, 8, 16,
        16, 16, 16, 16, 16, 16, 16, 16, 32, 32, 32, 64, 64, 64, 128, 128, 128, 256, 256, 128, 64, 32, 16, 8, 4, 2}},
      {{.initial_scale_power = 3, .loss_scale_window = 4, .hysteresis = 1, .consecutive_hysteresis = false, .min_loss_scale = 2},
       {8, 8, 4, 4, 4, 4, 4, 2, 2, 2, 2, 2, 2, 4, 4, 4, 4, 8,  4, 2, 2, 2, 2, 2, 2, 2,
        4, 4, 2, 2, 2, 2, 2, 2, 2, 4, 4, 4, 4, 8, 8, 8, 8, 16, 8, 4, 2, 2, 2, 2, 2, 2}},
      {{.initial_scale_power = 6,
        .loss_scale_window = 1000,
        .hysteresis = 3,
        .consecutive_hysteresis = true,
        .min_loss_scale = 1},
       {64, 64, 64, 64, 64, 64, 64, 64, 64, 64, 64, 64, 64, 64, 64, 64, 64, 64, 64, 64, 32, 16, 16, 16, 16, 16,
        16, 16, 16, 16, 16, 16, 16, 16, 16, 16, 16, 16, 16, 16, 16, 16, 16, 16, 16, 16, 8,  4,  2,  1,  1,  1}},
      {{.initial_scale_power = 5,
        .loss_scale_window = 2,
        .hysteresis = 3,
        .consecutive_hysteresis = false,
        .min_loss_scale = 0.5},
       {32,   32,   32,   32,    32,    64,    64,    64,    64,    64,    64,    128,   128,  256,  256,  512,  512,  1024,
        1024, 1024, 512,  256,   256,   256,   512,   512,   1024,  1024,  1024,  1024,  1024, 1024, 1024, 2048, 2048, 4096,
        4096, 8192, 8192, 16384, 16384, 32768, 32768, 65536, 65536, 65536, 32768, 16384, 8192, 4096, 2048, 1024}},
  };
  return all;
}

TEST(LossScale, FollowsDeepSpeedsSequence) {
  for (const Sequence& sequence : sequences()) {
    LossScale scale(sequence.options);
    for (size_t i = 0; i < kOverflows.size(); ++i) {
      const bool was_least = scale.value() == sequence.options.min_loss_scale;
      const bool is_possible = scale.update(kOverflows[i] == '1');
      EXPECT_EQ(scale.value(), sequence.scales[i]) << "step " << i;
      EXPECT_TRUE(is_possible || (was_least && kOverflows[i] == '1')) << "step " << i;
    }
  }
}

TEST(LossScale, ResumesFromItsState) {
  for (const Sequence& sequence : sequences()) {
    for (const size_t cut : {size_t{3}, size_t{8}, size_t{21}}) {
      LossScale first(sequence.options), second(sequence.options);
      for (size_t i = 0; i < cut; ++i) first.update(kOverflows[i] == '1');
      second.set_state(first.state());
      for (size_t i = cut; i < kOverflows.size(); ++i) {
        second.update(kOverflows[i] == '1');
        EXPECT_EQ(second.value(), sequence.scales[i]);
      }
    }
  }
}

TEST(LossScale, ReportsAnOverflowAtTheMinimum) {
  LossScale scale({.initial_scale_power = 1, .hysteresis = 1});
  EXPECT_TRUE(scale.update(true));
  EXPECT_EQ(scale.value(), 1);
  EXPECT_FALSE(scale.update(true));
}

TEST(LossScale, AConstantOneStays) {
  LossScale scale({.loss_scale = 128});
  for (const bool overflows : {true, true, false}) {
    EXPECT_TRUE(scale.update(overflows));
    EXPECT_EQ(scale.value(), 128);
  }
}

TEST(LossScale, AConstantOneStaysThroughALoad) {
  LossScale scale({.loss_scale = 128});
  scale.set_state(LossScale({.initial_scale_power = 4}).state());
  EXPECT_EQ(scale.value(), 128);
}

TEST(LossScale, TheFirstIsNotBelowTheMinimum) {
  const auto refusal = message_of<Misuse>([] { LossScale({.initial_scale_power = 2, .min_loss_scale = 8}); });
  EXPECT_EQ(refusal, "min_loss_scale is 8, above the first scale 2^2 = 4: lower it, or raise initial_scale_power");
}

TEST(LossScale, OptionsAreChecked) {
  EXPECT_EQ(parse_loss_scale(Value::Table{{"loss_scale_window", 5}}, "fp16").loss_scale_window, 5);
  const auto refusal = [](const char* key, const Value& value) {
    return message_of<Misuse>([&] { parse_loss_scale(Value::Table{{key, value}}, "fp16"); });
  };
  EXPECT_EQ(refusal("hysteresis", 0), "fp16.hysteresis must be at least 1, got 0");
  EXPECT_EQ(refusal("min_loss_scale", 0), "fp16.min_loss_scale must be above 0, got 0");
  EXPECT_NE(refusal("loss_scale_windw", 1).find("did you mean 'loss_scale_window'"), std::string::npos);
}

}  // namespace
}  // namespace zt::test
