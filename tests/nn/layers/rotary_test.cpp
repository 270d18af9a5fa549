// Tests scaled rotary angles beside the formulas of their sources, and which of attention's matmuls have biases.
#include "parts/rotary.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numbers>
#include <thread>

#include "layers/layers.h"
#include "nn/support/run.h"

namespace zt::nn {
namespace {

using Table = Value::Table;
using test::misuse_of;

constexpr int64_t kHeadDim = 12;
constexpr double kBase = 100;

// Returns the angles of some positions in float64, before and after scaling: cosines, then sines.
at::Tensor tables(const std::vector<int64_t>& positions, std::optional<RopeScaling> scaling) {
  const Angles angles = Rotary(kHeadDim, kBase, std::move(scaling)).angles(at::tensor(positions, at::kLong), at::kDouble);
  return at::cat({angles.cosine.index_select(0, angles.rows), angles.sine.index_select(0, angles.rows)}, 1);
}

// The factor is a power of two, so the division does not round.
TEST(RopeScaling, LinearGivesTheAnglesOfNearerPositions) {
  const RopeScaling scaling{.type = RopeScalingType::linear, .factor = 4};
  EXPECT_TRUE(at::equal(tables({0, 4, 8, 400}, scaling), tables({0, 1, 2, 100}, {})));
  EXPECT_TRUE(at::equal(tables({3, 5}, RopeScaling{}), tables({3, 5}, {})));
}

TEST(Rotary, LayersOfAThreadShareTheirTables) {
  const RopeScaling halved{.type = RopeScalingType::linear, .factor = 2};
  const std::shared_ptr<Rotary> first = Rotary::shared(kHeadDim, kBase, {}), scaled = Rotary::shared(kHeadDim, kBase, halved);
  EXPECT_EQ(Rotary::shared(kHeadDim, kBase, {}), first);
  EXPECT_EQ(Rotary::shared(kHeadDim, kBase, halved), scaled);
  EXPECT_NE(scaled, first);
  EXPECT_NE(Rotary::shared(kHeadDim + 2, kBase, {}), first);
  EXPECT_NE(Rotary::shared(kHeadDim, kBase + 1, {}), first);
  std::shared_ptr<Rotary> of_other;
  std::thread([&] { of_other = Rotary::shared(kHeadDim, kBase, {}); }).join();
  EXPECT_NE(of_other, first);
}

// A table grows by more than one position at a time, for generation. Those of other elements stay.
TEST(Rotary, TablesGrow) {
  Rotary rotary(kHeadDim, kBase);
  const auto table = [&](int64_t position, at::ScalarType dtype) {
    return rotary.angles(at::full({1}, position, at::kLong), dtype).cosine;
  };
  const at::Tensor first = table(9, at::kDouble), narrow = table(3, at::kBFloat16);
  EXPECT_EQ(first.size(0), 10);
  EXPECT_EQ(narrow.scalar_type(), at::kFloat);
  const at::Tensor grown = table(10, at::kDouble);
  EXPECT_EQ(grown.size(0), 15);
  EXPECT_TRUE(at::equal(grown.narrow(0, 0, 10), first));
  EXPECT_TRUE(table(14, at::kDouble).is_same(grown));
  EXPECT_TRUE(table(2, at::kFloat).is_same(narrow));
  EXPECT_EQ(table(99, at::kDouble).size(0), 100);
}

// The formula with wavelengths, as Llama 3.1's report and transformers have it.
double llama3_angle(double angle, const RopeScaling& s) {
  const double wavelength = 2 * std::numbers::pi / angle, original = static_cast<double>(*s.original);
  if (wavelength < original / *s.high_freq_factor) return angle;
  if (wavelength > original / *s.low_freq_factor) return angle / s.factor;
  const double smooth = (original / wavelength - *s.low_freq_factor) / (*s.high_freq_factor - *s.low_freq_factor);
  return (1 - smooth) * angle / s.factor + smooth * angle;
}

TEST(RopeScaling, Llama3DividesLongWavelengthsOnly) {
  const RopeScaling scaling{RopeScalingType::llama3, 8, 1.5, 4, 64};
  const int64_t position = 37;
  const at::Tensor got = tables({position}, scaling)[0], plain = tables({position}, {})[0];
  int kept = 0, divided = 0;
  for (int64_t i = 0; i < kHeadDim / 2; ++i) {
    const double angle = std::pow(kBase, -2.0 * static_cast<double>(i) / kHeadDim), scaled = llama3_angle(angle, scaling);
    const double exact = scaled * static_cast<double>(position);
    // An angle of up to 37 is rounded a few times, each time by 2^-53 relative.
    EXPECT_NEAR(got[i].item<double>(), std::cos(exact), 8 * 37 * 0x1p-53) << i;
    EXPECT_NEAR(got[kHeadDim / 2 + i].item<double>(), std::sin(exact), 8 * 37 * 0x1p-53) << i;
    if (scaled == angle) {
      EXPECT_EQ(got[i].item<double>(), plain[i].item<double>()) << i;
    }
    kept += scaled == angle ? 1 : 0;
    divided += scaled == angle / scaling.factor ? 1 : 0;
  }
  EXPECT_EQ(kept, 2);  // wavelengths 6.3, 13.5; then 29.2, which is mixed; then 62.8, 135, 292
  EXPECT_EQ(divided, 3);
}

TEST(RopeScaling, RefusesWhatItsTypeDoesNotHave) {
  const auto refused = [](Table scaling, const std::string& message) {
    const std::string got = misuse_of([&] {
      make_attention(Table{{"hidden", 8}, {"heads", 2}, {"rotary", true}, {"rope_scaling", std::move(scaling)}});
    });
    EXPECT_NE(got.find(message), std::string::npos) << got;
  };
  refused({{"type", "yarn"}, {"factor", 2}}, "rope_scaling.type must be one of 'linear', 'llama3', got 'yarn'");
  refused({{"factor", 2}}, "rope_scaling: option 'type' is missing");
  refused({{"type", "linear"}}, "rope_scaling: option 'factor' is missing");
  refused({{"type", "linear"}, {"factor", 0}}, "rope_scaling.factor must be above 0, got 0");
  refused({{"type", "linear"}, {"factor", 2}, {"original", 8}},
          "rope_scaling.original has an effect only with type = \"llama3\"");
  refused({{"type", "llama3"}, {"factor", 2}, {"low_freq_factor", 1}, {"high_freq_factor", 4}},
          "needs low_freq_factor, high_freq_factor and original: give all three");
  refused({{"type", "llama3"}, {"factor", 2}, {"low_freq_factor", 4}, {"high_freq_factor", 4}, {"original", 8}},
          "low_freq_factor = 4 must be below high_freq_factor = 4");
}

TEST(QkvBias, IsThatOfTheProjectionBeforeTheScores) {
  const auto biases = [](Table more) {
    more.insert({{"hidden", 6}, {"heads", 2}});
    std::vector<std::string> names;
    for (const auto& param : make_attention(more)->params())
      if (param->name.ends_with("bias")) names.push_back(param->name);
    return names;
  };
  using Names = std::vector<std::string>;
  EXPECT_EQ(biases({}), (Names{"qkv.bias", "out.bias"}));
  EXPECT_EQ(biases({{"bias", false}}), Names{});
  EXPECT_EQ(biases({{"bias", false}, {"qkv_bias", true}}), Names{"qkv.bias"});
  EXPECT_EQ(biases({{"qkv_bias", false}}), Names{"out.bias"});
}

}  // namespace
}  // namespace zt::nn
