// Who multiplies: classes of shapes, choices as data, the trial with fake providers and a fake clock, agreement of ranks.
#include "zt/gemm_choice.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <mutex>
#include <nlohmann/json.hpp>

#include "mesh.h"
#include "support/message.h"
#include "support/spawn.h"

namespace zt::test {
namespace {

using Lines = std::vector<std::string>;

thread_local double last_seconds = 0;  // what the fake clock reads: set by the provider that ran

// Multiplies by `aten` and does something to the result.
class Fake : public Gemm {
 public:
  Fake(double seconds, std::function<void(const at::Tensor& c)> spoil = {}) : seconds_(seconds), spoil_(std::move(spoil)) {}
  bool takes(at::DeviceType device, at::ScalarType dtype) const override { return device == at::kCPU && dtype == at::kFloat; }
  void run(const at::Tensor& a, const at::Tensor& b, const at::Tensor& c, double beta, double alpha) const override {
    find_gemm("aten").run(a, b, c, beta, alpha);
    if (spoil_) spoil_(c);
    last_seconds = seconds_;
  }

 private:
  double seconds_;
  std::function<void(const at::Tensor& c)> spoil_;
};

void register_fakes() {
  static const bool once [[maybe_unused]] = [] {
    register_gemm("fast", std::make_shared<Fake>(0.5));
    register_gemm("hardly_faster", std::make_shared<Fake>(0.98));
    register_gemm("slow", std::make_shared<Fake>(2));
    register_gemm("hopeless", std::make_shared<Fake>(6));
    register_gemm("wrong", std::make_shared<Fake>(0.1, [](const at::Tensor& c) { c.select(0, c.size(0) - 1).mul_(1.001); }));
    register_gemm("not_finite", std::make_shared<Fake>(0.1, [](const at::Tensor& c) { c.select(1, 0).fill_(NAN); }));
    register_gemm("overwrites", std::make_shared<Fake>(0.1, [](const at::Tensor& c) { c.zero_(); }));
    register_gemm("throws", std::make_shared<Fake>(0.1, [](const at::Tensor&) { fault("the fake library returned 3"); }));
    return true;
  }();
}

struct Trial {
  Lines lines;
  GemmTrial trial;

  explicit Trial(Lines providers) {
    register_fakes();
    trial.providers = std::move(providers);
    trial.report = [this](const std::string& line) { lines.push_back(line); };
    trial.seconds = [](const std::function<void()>& product) {
      last_seconds = 1;  // aten does not set it
      product();
      return last_seconds;
    };
  }
  std::string choose(const GemmShape& shape) { return choose_gemm({shape}, trial).provider(gemm_class(shape)); }
};

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
      choose_gemm({{kind, dtype, 100, 65, 257}}, trial);
      for (const std::string& line : lines) EXPECT_EQ(line.find("wrong"), std::string::npos) << line;
    }
  }
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

TEST(GemmChoice, GoesThroughAValueAndJson) {
  GemmChoice choice = default_gemm_choice();
  choice.by_class[gemm_class(kForward)] = "onednn";
  choice.by_class[gemm_class({GemmKind::weight_gradient, at::kHalf, 1, 70000, 512})] = "mkl";
  EXPECT_EQ(GemmChoice::from_value(choice.to_value()), choice);
  EXPECT_EQ(GemmChoice::from_value(Value::from_json(choice.to_value().to_json())), choice);
  EXPECT_EQ(*choice.to_value().get_if<Value::Table>()->at("forward/float32/64x64x64").get_if<std::string>(), "onednn");
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

// Every rank plans a shape of its own; the trial covers all of them, and all ranks hold one choice.
TEST(GemmChoice, RanksAgree) {
  constexpr int kRanks = 3;
  const auto shape_of = [](int rank) { return GemmShape{GemmKind::forward, at::kFloat, int64_t{16} << (2 * rank), 8, 8}; };
  for (const std::string request : {"auto", "default"}) {
    request_gemm(request);
    std::mutex mutex;
    std::vector<GemmChoice> choices;
    spawn(kRanks, [&](const World& world) {
      const auto ranks =
          comm::make_communicator(world, "local", {"world", world.rank, {0, 1, 2}}, {.timeout = std::chrono::seconds(60)});
      const GemmChoice choice = settle_gemm({shape_of(world.rank)}, *ranks, world);
      const std::lock_guard lock(mutex);
      choices.push_back(choice);
    });
    ASSERT_EQ(choices.size(), 3U);
    for (const GemmChoice& choice : choices) EXPECT_EQ(choice, choices[0]);
    EXPECT_EQ(gemm_choice(), choices[0]);
    EXPECT_EQ(choices[0].by_class.size(), request == "auto" ? 3U : 0U);
    for (int rank = 0; rank < kRanks; ++rank) {
      EXPECT_EQ(choices[0].by_class.contains(gemm_class(shape_of(rank))), request == "auto");
    }
  }
  request_gemm("default");
}

}  // namespace
}  // namespace zt::test
