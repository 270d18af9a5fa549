// Broken schedules are refused or train with equal bits, and none hangs. (Random correct ones: tests/numerics/random.)
#include <gtest/gtest.h>

#include "pipe/support/pipelines.h"
#include "pipe/support/random_schedule.h"
#include "schedule/check.h"
#include "schedule/text.h"
#include "support/exhaustive.h"
#include "support/spawn.h"
#include "zt/base/error.h"

namespace zt::test {
namespace {

using namespace pipe;
using pipe::PipelineSchedule;

// 2,000 with scripts/test.sh --exhaustive.
constexpr uint32_t kSeeds = 50, kExhaustiveSeeds = 2000;
constexpr uint32_t kFuzzParts = 4;

class Fuzz : public testing::TestWithParam<uint32_t> {};

Pipeline pipeline_of(const PipelineSchedule& schedule) {
  return {.ranks = static_cast<int>(schedule.ranks.size()), .schedule = std::make_shared<const PipelineSchedule>(schedule)};
}

Config config_for(const PipelineSchedule& schedule, uint32_t seed) {
  Config whole{.ranks = 1, .micro_batches = schedule.micro_batches, .stage = static_cast<int>(seed % 4), .steps = 2};
  whole.samples = schedule.micro_batches;
  whole.reduce_every = seed % 3 == 0 ? "micro_batch" : "step";
  whole.tied = seed % 2 == 0;
  return whole;
}

TEST_P(Fuzz, BrokenSchedulesAreRefusedOrExact) {
  int refused = 0, exact = 0;
  for (uint32_t seed = GetParam(); seed < (is_exhaustive() ? kExhaustiveSeeds : kSeeds); seed += kFuzzParts) {
    const PipelineSchedule schedule = broken_schedule(seed);
    SCOPED_TRACE(testing::Message() << "seed " << seed << "\n" << to_text(schedule));
    if (!check(schedule).empty()) {
      EXPECT_THROW(require_correct(schedule, "it"), Misuse);
      ++refused;
      continue;
    }
    expect_exact(pipeline_of(schedule), config_for(schedule, seed));
    ++exact;
    if (HasFailure()) return;
  }
  RecordProperty("refused", refused);
  RecordProperty("exact", exact);
  EXPECT_GT(refused, 0);
}

INSTANTIATE_TEST_SUITE_P(Seeds, Fuzz, testing::Range(0U, kFuzzParts));

// Changes the program of one rank at random, after all others have been applied.
class Damage : public Pass {
 public:
  Damage(uint32_t seed, int rank) : seed_(seed), rank_(rank) {}
  std::string name() const override { return "damage"; }
  Phase phase() const override { return Phase::overlap; }
  RankProgram apply(RankProgram program, const ModelInfo&, const Coord& coord) const override {
    if (coord.rank != rank_ || program.mode != Mode::train) return program;
    uint32_t state = seed_;
    const auto draw = [&](size_t count) { return (state = state * 1664525U + 1013904223U) / 65536 % count; };
    auto& actions = program.actions;
    const size_t a = draw(actions.size()), b = std::min(actions.size() - 1, a + 1 + draw(6));
    switch (draw(4)) {
      case 0:
        std::swap(actions[a], actions[b]);
        break;
      case 1:
        actions.erase(actions.begin() + static_cast<int64_t>(a));
        break;
      case 2:
        actions.insert(actions.begin() + static_cast<int64_t>(b), Action(actions[a]));
        break;
      default:
        std::rotate(actions.begin() + static_cast<int64_t>(a), actions.begin() + static_cast<int64_t>(b),
                    actions.begin() + static_cast<int64_t>(b) + 1);
    }
    return program;
  }

 private:
  uint32_t seed_;
  int rank_;
};

// Swaps, repeats, removes and moves single actions of a rank: messages, collectives and layers alike.
TEST_P(Fuzz, BrokenProgramsAreRefusedOrExact) {
  int refused = 0, exact = 0;
  for (uint32_t seed = GetParam(); seed < (is_exhaustive() ? kExhaustiveSeeds : kSeeds); seed += kFuzzParts) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    const Config whole{
        .ranks = 2, .micro_batches = 4, .stage = static_cast<int>(seed % 4), .reduce_every = "step", .steps = 2, .samples = 8};
    Config config = through({.ranks = 2, .name = seed % 2 == 0 ? "zb_h1" : "zb_v"}, whole);
    config.last_pass = std::make_shared<Damage>(seed, static_cast<int>(seed % 4));
    bool is_refused = false;
    std::mutex mutex;
    spawn(config.ranks, [&](const World& world) {
      try {
        make_trainer(world, config);
      } catch (const Misuse&) {
        const std::lock_guard lock(mutex);
        is_refused = true;
      }
    });
    ++(is_refused ? refused : exact);
    if (!is_refused) expect_equal(train(config), whole_run(whole));
    if (HasFailure()) return;
  }
  EXPECT_GT(refused, 0);
}

}  // namespace
}  // namespace zt::test
