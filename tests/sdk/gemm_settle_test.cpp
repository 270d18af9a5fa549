// Who multiplies, over the life of a process: trials that add to each other, ranks that agree, choices from checkpoints.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <mutex>

#include "mesh.h"
#include "sdk/gemm_fakes.h"
#include "support/message.h"
#include "support/spawn.h"
#include "zt/gemm_choice.h"

namespace zt::test {
namespace {

const GemmShape kFirst{GemmKind::forward, at::kFloat, 65, 66, 67}, kSecond{GemmKind::weight_gradient, at::kFloat, 65, 66, 67};

// Every test starts as a process does.
class Settle : public testing::Test {
 protected:
  void SetUp() override {
    register_fakes();
    request_gemm("default");
  }
  void TearDown() override { request_gemm("default"); }
};

std::string provider_of(const GemmShape& shape) {
  return gemm_choice().provider(gemm_class(shape));
}

TEST_F(Settle, ALaterTrialKeepsWhatAnEarlierOneChose) {
  request_gemm("auto");
  Trial first({"aten", "fast"}), second({"aten", "slow", "fastest"}), third({"aten", "fastest"});
  settle_products({kFirst}, nullptr, first.trial);
  EXPECT_EQ(provider_of(kFirst), "fast");
  const GemmChoice both = settle_products({kSecond, kFirst}, nullptr, second.trial);
  EXPECT_EQ(provider_of(kFirst), "fast");
  EXPECT_EQ(provider_of(kSecond), "fastest");
  EXPECT_EQ(gemm_choice(), both);
  ASSERT_EQ(second.lines.size(), 1U);
  EXPECT_CONTAINS(second.lines[0], "gemm weight_gradient");

  request_gemm("auto");  // a second script's line
  EXPECT_EQ(settle_products({kFirst, kSecond}, nullptr, third.trial), both);
  EXPECT_TRUE(third.lines.empty());
}

TEST_F(Settle, TriesOnlyWhereTheScriptAskedForIt) {
  Trial trial({"aten", "fast"});
  settle_products({kFirst}, nullptr, trial.trial);
  EXPECT_EQ(gemm_choice(), default_gemm_choice());
  request_gemm("slow");
  settle_products({kFirst}, nullptr, trial.trial);
  EXPECT_EQ(gemm_choice(), fixed_gemm_choice("slow"));
  EXPECT_TRUE(trial.lines.empty());
  request_gemm("auto");  // starts from the rule
  EXPECT_EQ(gemm_choice(), default_gemm_choice());
  settle_products({}, nullptr, trial.trial);
  EXPECT_EQ(gemm_choice(), default_gemm_choice());
}

TEST_F(Settle, AFailedTrialChangesNothing) {
  request_gemm("auto");
  Trial good({"aten", "fast"}), bad({"wrong", "throws"});
  const GemmChoice before = settle_products({kFirst}, nullptr, good.trial);
  EXPECT_CONTAINS(message_of<Fault>([&] { settle_products({kFirst, kSecond}, nullptr, bad.trial); }), "gives a right result");
  EXPECT_EQ(gemm_choice(), before);
}

constexpr int kRanks = 3;

// Calls `body` on ranks that are threads.
void on_ranks(const std::function<void(const World&, Communicator&)>& body) {
  spawn(kRanks, [&](const World& world) {
    body(world,
         *comm::make_communicator(world, "local", {"world", world.rank, {0, 1, 2}}, {.timeout = std::chrono::seconds(60)}));
  });
}

// Every rank plans a shape of its own; the trial covers all of them, and all ranks hold one choice.
TEST_F(Settle, RanksAgree) {
  const auto shape_of = [](int rank) { return GemmShape{GemmKind::forward, at::kFloat, int64_t{16} << (2 * rank), 8, 8}; };
  for (const std::string request : {"auto", "default"}) {
    request_gemm(request);
    std::mutex mutex;
    std::vector<GemmChoice> choices;
    on_ranks([&](const World& world, Communicator& ranks) {
      const GemmChoice choice = settle_products({shape_of(world.rank)}, &ranks, world);
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
}

TEST_F(Settle, RanksKeepWhatAnEarlierTrialChose) {
  request_gemm("auto");
  Trial alone({"aten", "fast"});
  settle_products({kFirst}, nullptr, alone.trial);
  on_ranks([&](const World&, Communicator& ranks) {
    Trial together({"aten", "fastest"});
    settle_products({kFirst, kSecond}, &ranks, together.trial);
  });
  EXPECT_EQ(provider_of(kFirst), "fast");
  EXPECT_EQ(provider_of(kSecond), "fastest");
}

TEST_F(Settle, AFailedTrialFailsOnAllRanks) {
  request_gemm("auto");
  std::mutex mutex;
  std::vector<std::string> said;
  on_ranks([&](const World&, Communicator& ranks) {
    Trial bad({"wrong", "throws"});
    const std::string message = message_of<Fault>([&] { settle_products({kFirst}, &ranks, bad.trial); });
    const std::lock_guard lock(mutex);
    said.push_back(message);
  });
  ASSERT_EQ(said.size(), 3U);
  for (const std::string& message : said) EXPECT_CONTAINS(message, "on rank 0 failed: gemm forward/float32/64x64x64");
  EXPECT_EQ(gemm_choice(), default_gemm_choice());
}

TEST_F(Settle, PartsJoinByRank) {
  GemmPart zero{"auto", default_gemm_choice(), {kFirst}}, one{"auto", fixed_gemm_choice("slow"), {kSecond}};
  zero.choice.by_class[gemm_class(kFirst)] = "fast";
  one.choice.by_class[gemm_class(kFirst)] = "slow";
  one.choice.by_class[gemm_class(kSecond)] = "slow";
  const GemmPart all = join({zero, one});
  GemmChoice wanted = zero.choice;
  wanted.by_class[gemm_class(kSecond)] = "slow";
  EXPECT_EQ(all.choice, wanted);
  EXPECT_EQ(all.shapes, (std::vector<GemmShape>{kFirst, kSecond}));
  one.request = "default";
  EXPECT_SAYS("rank 0 asks for the gemm provider 'auto' and rank 1 for 'default'", join({zero, one}));
}

TEST_F(Settle, ASavedChoiceIsUsedWhole) {
  GemmChoice saved = fixed_gemm_choice("slow");
  saved.by_class[gemm_class(kFirst)] = "fast";
  EXPECT_TRUE(adopt_gemm_choice(saved).empty());
  EXPECT_EQ(gemm_choice(), saved);
}

TEST_F(Settle, ASavedChoiceThatNamesLessIsCompletedByTheRule) {
  GemmChoice saved = fixed_gemm_choice("slow");
  const GemmChoice whole = saved;
  saved.widening.clear();
  EXPECT_TRUE(adopt_gemm_choice(saved).empty());
  EXPECT_EQ(gemm_choice(), whole);
}

TEST_F(Settle, ASavedChoiceLeavesWhatIsChosen) {
  request_gemm("auto");
  Trial trial({"aten", "fast"});
  settle_products({kFirst}, nullptr, trial.trial);
  GemmChoice saved = default_gemm_choice();
  saved.by_dtype[at::kFloat] = "slow";
  saved.by_class[gemm_class(kFirst)] = "slow";
  saved.by_class[gemm_class(kSecond)] = "slow";
  EXPECT_EQ(adopt_gemm_choice(saved), (std::vector<std::string>{"float32", "forward/float32/64x64x64"}));
  EXPECT_EQ(provider_of(kFirst), "fast");
  EXPECT_EQ(provider_of(kSecond), "slow");
  EXPECT_EQ(gemm_choice().by_dtype.at(at::kFloat), "aten");
}

TEST_F(Settle, ASavedChoiceSaysWhetherFewRowsAreAnotherMatter) {
  GemmChoice saved = default_gemm_choice();
  saved.few_rows = {{at::kFloat, "slow"}};
  EXPECT_TRUE(adopt_gemm_choice(saved).empty());
  EXPECT_EQ(gemm_choice(), saved);
  saved.few_rows.clear();
  EXPECT_TRUE(adopt_gemm_choice(saved).empty());
  EXPECT_EQ(gemm_choice(), saved);

  request_gemm("auto");
  Trial trial({"aten", "fast"});
  settle_products({kFirst}, nullptr, trial.trial);
  const GemmChoice kept = gemm_choice();
  saved.few_rows = {{at::kDouble, "aten"}};
  EXPECT_EQ(adopt_gemm_choice(saved), std::vector<std::string>{"float64_of_few_rows"});
  EXPECT_EQ(gemm_choice(), kept);
}

}  // namespace
}  // namespace zt::test
