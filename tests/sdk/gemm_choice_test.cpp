// Who multiplies: classes of shapes, choices as data, the trial with fake providers and a fake clock.
#include "zt/gemm_choice.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>

#include "sdk/gemm_fakes.h"
#include "support/message.h"
#include "zt/isa.h"

namespace zt::test {
namespace {

const GemmShape kForward{GemmKind::forward, at::kFloat, 65, 66, 67};

TEST(GemmTrial, ChoosesTheFastest) {
  Trial trial({"aten", "slow", "fast", "hardly_faster"});
  for (const GemmKind kind : {GemmKind::forward, GemmKind::input_gradient, GemmKind::weight_gradient}) {
    EXPECT_EQ(trial.choose({kind, at::kFloat, 65, 66, 67}), "fast");
  }
  EXPECT_EQ(trial.lines[0],
            "gemm forward/float32/64x64x64 of 65 x 66 x 67: aten 0.000575, slow 0.000287, fast 0.00115, "
            "hardly_faster 0.000587 in GFLOP/s; chosen: fast");
}

TEST(GemmTrial, KeepsTheUsualOneWithoutAClearGain) {
  EXPECT_EQ(Trial({"slow", "hardly_faster", "aten"}).choose(kForward), "aten");
  EXPECT_EQ(Trial({"slow", "hardly_faster"}).choose(kForward), "hardly_faster");
}

TEST(GemmTrial, SortsOutWhatIsHopelessOnASmallProduct) {
  Trial trial({"aten", "hopeless", "wrong", "fast"});
  EXPECT_EQ(trial.choose({GemmKind::weight_gradient, at::kFloat, 300, 66, 67}), "fast");
  ASSERT_EQ(trial.lines.size(), 3U);
  EXPECT_CONTAINS(trial.lines[0], "'wrong' is not chosen: its result is wrong");
  EXPECT_CONTAINS(trial.lines[1], "'hopeless' is not chosen: 12 times as slow as another");
  EXPECT_CONTAINS(trial.lines[2], ": aten 0.00265, fast 0.00531 in GFLOP/s; chosen: fast");
}

TEST(GemmTrial, NeverChoosesAWrongOne) {
  for (const GemmKind kind : {GemmKind::forward, GemmKind::input_gradient, GemmKind::weight_gradient}) {
    Trial trial({"wrong", "aten", "not_finite", "throws", "overwrites"});
    EXPECT_EQ(trial.choose({kind, at::kFloat, 200, 66, 67}), "aten");
    ASSERT_EQ(trial.lines.size(), 4U);
    EXPECT_CONTAINS(trial.lines[0], "of 200 x 66 x 67: 'wrong' is not chosen: its result is wrong");
    EXPECT_CONTAINS(trial.lines[1], "'not_finite' is not chosen: its result is wrong");
    EXPECT_CONTAINS(trial.lines[2], "'throws' is not chosen: the fake library returned 3");
    EXPECT_CONTAINS(trial.lines[3], "'overwrites' is not chosen");
  }
  EXPECT_CONTAINS(message_of<Fault>([] {
                    Trial({"wrong", "throws"}).choose(kForward);
                  }),
                  "no gemm provider gives a right result");
}

TEST(GemmTrial, TriesTheLargestOfEachClass) {
  Trial trial({"aten", "fast"});
  const GemmShape small{GemmKind::forward, at::kFloat, 64, 64, 64}, large{GemmKind::forward, at::kFloat, 70, 250, 64};
  const GemmShape half{GemmKind::weight_gradient, at::kHalf, 64, 64, 300}, none{GemmKind::forward, at::kFloat, 0, 64, 64};
  const GemmChoice choice = choose_gemm({small, large, half, none, small}, trial.trial);
  EXPECT_EQ(choice.by_class.size(), 2U);
  EXPECT_EQ(choice.provider(gemm_class(large)), "fast");
  EXPECT_EQ(choice.provider(gemm_class(half)), "aten");  // the only one that takes it
  ASSERT_EQ(trial.lines.size(), 1U);
  EXPECT_CONTAINS(trial.lines[0], "of 70 x 250 x 64");
}

TEST(GemmTrial, FindsTheProvidersOfLibTorchRight) {
  for (const at::ScalarType dtype : {at::kFloat, at::kDouble, at::kBFloat16, at::kHalf}) {
    for (const GemmKind kind : {GemmKind::forward, GemmKind::input_gradient, GemmKind::weight_gradient}) {
      Lines lines;
      GemmTrial trial = timed_gemm_trial([&](const std::string& line) { lines.push_back(line); });
      trial.providers = {"aten"};
      if (has_gemm("mkl")) trial.providers.emplace_back("mkl");
      const bool is_half = dtype == at::kBFloat16 || dtype == at::kHalf;
      choose_gemm({{kind, dtype, 100, 65, 257}, {kind, dtype, 100, 65, 257, is_half}}, trial);
      for (const std::string& line : lines) EXPECT_EQ(line.find("wrong"), std::string::npos) << line;
    }
  }
}

// Multiplies bf16, notes what it is given, and rounds its product to bf16 on the way to c.
class Rounding : public Gemm {
 public:
  bool takes(at::DeviceType device, at::ScalarType dtype) const override { return device == at::kCPU && dtype == at::kBFloat16; }
  void run(const at::Tensor& a, const at::Tensor& b, const at::Tensor& c, double beta, double alpha) const override {
    results.insert(c.scalar_type());
    const at::Tensor product = a.mm(b) * alpha;
    if (beta == 0) at::Tensor(c).copy_(product);
    else at::Tensor(c).mul_(beta).add_(product);
    last_seconds = 0.1;
  }
  mutable std::set<at::ScalarType> results;
};

TEST(GemmTrial, MultipliesIntoTheDtypeOfTheSinkAndSumsInFp32) {
  const auto rounding = std::make_shared<Rounding>();
  register_gemm("rounding", rounding);
  const GemmShape into_bf16{GemmKind::weight_gradient, at::kBFloat16, 65, 66, 67};
  GemmShape into_fp32 = into_bf16;
  into_fp32.widens = true;
  Trial trial({"aten", "rounding"});
  EXPECT_EQ(trial.choose(into_bf16), "rounding");
  EXPECT_EQ(rounding->results, std::set<at::ScalarType>{at::kBFloat16});
  rounding->results.clear();
  EXPECT_EQ(trial.choose(into_fp32), "aten");
  EXPECT_EQ(rounding->results, std::set<at::ScalarType>{at::kFloat});
  EXPECT_CONTAINS(trial.lines.back(),
                  "weight_gradient/bfloat16_to_float32/64x64x64 of 65 x 66 x 67: 'rounding' is not chosen: "
                  "its result is wrong");
}

TEST(GemmChoice, ClassesAreAFactorOfFour) {
  const auto text = [](int64_t m, int64_t n, int64_t k) {
    return name_of(gemm_class({GemmKind::input_gradient, at::kBFloat16, m, n, k}));
  };
  EXPECT_EQ(text(1, 63, 64), "input_gradient/bfloat16/1x1x64");
  EXPECT_EQ(text(255, 256, 1023), "input_gradient/bfloat16/64x256x256");
  EXPECT_EQ(text(65536, int64_t{1} << 40, 65535), "input_gradient/bfloat16/65536x65536x16384");
  EXPECT_EQ(text(0, 1, 2), "input_gradient/bfloat16/1x1x1");
}

TEST(GemmChoice, HasAProviderForFewRowsAndALargeMatrix) {
  GemmChoice choice = fixed_gemm_choice("aten");
  EXPECT_TRUE(choice.few_rows.empty());
  choice.few_rows[at::kFloat] = "skinny";
  const auto chosen = [&](GemmKind kind, int64_t m, int64_t n, int64_t k, at::ScalarType dtype = at::kFloat) {
    return choice.provider(gemm_class({kind, dtype, m, n, k}));
  };
  EXPECT_EQ(chosen(GemmKind::forward, 63, 4096, 1024), "skinny");
  EXPECT_EQ(chosen(GemmKind::forward, 32, 256, 1024), "skinny");
  EXPECT_EQ(chosen(GemmKind::input_gradient, 32, 1024, 256), "skinny");
  EXPECT_EQ(chosen(GemmKind::weight_gradient, 1024, 256, 63), "skinny");
  EXPECT_EQ(chosen(GemmKind::forward, 64, 4096, 1024), "aten");
  EXPECT_EQ(chosen(GemmKind::forward, 32, 1023, 256), "aten");
  EXPECT_EQ(chosen(GemmKind::input_gradient, 32, 256, 1024), "aten");
  EXPECT_EQ(chosen(GemmKind::weight_gradient, 4096, 1024, 64), "aten");
  EXPECT_EQ(chosen(GemmKind::weight_gradient, 256, 1024, 63), "aten");
  EXPECT_EQ(chosen(GemmKind::forward, 32, 4096, 1024, at::kDouble), "aten");
  choice.by_class[gemm_class({GemmKind::forward, at::kFloat, 63, 4096, 1024})] = "fast";
  EXPECT_EQ(chosen(GemmKind::forward, 1, 4096, 1024), "fast");
}

TEST(GemmChoice, TakesSkinnyByTheProcessor) {
  const bool has_rule = supported_isas().back() == Isa::avx512 && has_gemm("mkl");
  const auto& few_rows = default_gemm_choice().few_rows;
  EXPECT_EQ(few_rows.contains(at::kFloat), has_rule);
  EXPECT_FALSE(few_rows.contains(at::kDouble));
  for (const auto& [dtype, provider] : few_rows) EXPECT_EQ(provider, "skinny");
}

TEST(GemmChoice, GoesThroughAValueAndJson) {
  GemmChoice choice = default_gemm_choice();
  choice.few_rows[at::kHalf] = "mkl";
  choice.by_class[gemm_class(kForward)] = "onednn";
  choice.by_class[gemm_class({GemmKind::weight_gradient, at::kHalf, 1, 70000, 512})] = "mkl";
  choice.by_class[gemm_class({GemmKind::weight_gradient, at::kHalf, 1, 70000, 512, true})] = "aten";
  choice.widening[at::kHalf] = "rounding";
  EXPECT_EQ(GemmChoice::from_value(choice.to_value()), choice);
  EXPECT_EQ(GemmChoice::from_value(Value::from_json(choice.to_value().to_json())), choice);
  EXPECT_EQ(*choice.to_value().get_if<Value::Table>()->at("forward/float32/64x64x64").get_if<std::string>(), "onednn");
}

TEST(GemmChoice, TheRuleMultipliesIntoFp32ByMkl) {
  const std::string wanted = has_gemm("mkl") ? "mkl" : "aten";
  for (const at::ScalarType dtype : {at::kBFloat16, at::kHalf}) {
    EXPECT_EQ(default_gemm_choice().provider(gemm_class({GemmKind::weight_gradient, dtype, 64, 64, 64, true})), wanted);
    EXPECT_EQ(fixed_gemm_choice("aten").provider(gemm_class({GemmKind::weight_gradient, dtype, 64, 64, 64, true})), "aten");
  }
}

TEST(GemmChoice, RefusesWhatIsNoChoice) {
  EXPECT_SAYS("is a table, got a string", GemmChoice::from_value("aten"));
  EXPECT_SAYS("'forward/float32/3x64x64' in a choice of gemm providers is no class",
              GemmChoice::from_value(Value::Table{{"forward/float32/3x64x64", "aten"}}));
  EXPECT_SAYS("'float32' is a name, got an integer", GemmChoice::from_value(Value::Table{{"float32", 1}}));
}

TEST(GemmChoice, IsWhatProductsUse) {
  register_fakes();
  GemmChoice choice = default_gemm_choice();
  choice.by_class[gemm_class(kForward)] = "fast";
  use_gemm_choice(choice);
  EXPECT_EQ(gemm_choice(), choice);
  const auto seconds_of = [](const GemmShape& s) {
    last_seconds = 1;
    gemm(s.kind, at::ones({s.m, s.k}), at::ones({s.k, s.n}), at::empty({s.m, s.n}));
    return last_seconds;
  };
  EXPECT_EQ(seconds_of(kForward), 0.5);
  EXPECT_EQ(seconds_of({GemmKind::input_gradient, at::kFloat, 65, 66, 67}), 1);
  EXPECT_EQ(seconds_of({GemmKind::forward, at::kFloat, 65, 66, 63}), 1);

  GemmChoice broken = choice;
  broken.by_class[gemm_class({GemmKind::forward, at::kHalf, 1, 1, 1})] = "fast";
  EXPECT_SAYS("'fast' does not multiply float16", use_gemm_choice(broken));
  broken = choice;
  broken.by_dtype[at::kFloat] = "unknown";
  EXPECT_SAYS("no gemm provider 'unknown'", use_gemm_choice(broken));
  broken.by_dtype.clear();
  EXPECT_SAYS("names none for", use_gemm_choice(broken));
  broken = choice;
  broken.widening.erase(at::kHalf);
  EXPECT_SAYS("names none for float16_to_float32", use_gemm_choice(broken));
  EXPECT_EQ(gemm_choice(), choice);
  EXPECT_EQ(seconds_of(kForward), 0.5);

  request_gemm("fast");
  EXPECT_EQ(seconds_of({GemmKind::input_gradient, at::kFloat, 65, 66, 67}), 0.5);
  EXPECT_EQ(gemm_choice().by_dtype.at(at::kDouble), "aten");
  request_gemm("default");
  EXPECT_EQ(gemm_choice(), default_gemm_choice());
  EXPECT_SAYS("no gemm provider 'fsat': did you mean 'fast'?", request_gemm("fsat"));
  EXPECT_EQ(gemm_request(), "default");
}

}  // namespace
}  // namespace zt::test
