// A model that is trained through a pipeline has the same losses, norms and weights as without, bit for bit.
#include <gtest/gtest.h>

#include "pipe/support/pairs.h"
#include "pipe/support/pipelines.h"
#include "schedule/recipes.h"
#include "support/exhaustive.h"

namespace zt::test {
namespace {

// The factors: schedule, ranks, micro-batches, stage of ZeRO, data-parallel ranks, recompute, precision, tied, reduce_every.
std::vector<int> levels() {
  return {static_cast<int>(pipe::recipes().size()), 4, 4, 4, 2, 2, 2, 2, 2};
}

std::vector<std::vector<int>> chosen_cases() {
  if (is_exhaustive()) return product(levels());
  auto cases = pairwise(levels(), 1);
  for (auto& choice : pairwise(levels(), 2)) cases.push_back(std::move(choice));
  return cases;
}

class Exact : public testing::TestWithParam<int> {};

constexpr int kParts = 12;  // of the cases, so that they can be spread over processes

TEST_P(Exact, PairwiseCover) {
  const auto cases = chosen_cases();
  for (size_t i = static_cast<size_t>(GetParam()); i < cases.size(); i += kParts) {
    const auto& choice = cases[i];
    const int ranks = choice[1] + 1, data_ranks = choice[4] + 1;
    const int micro_batches[] = {1, ranks, 2 * ranks + 1, 3 * ranks};
    const Pipeline pipeline{.ranks = ranks, .name = pipe::recipes()[static_cast<size_t>(choice[0])].name};
    Config whole{.ranks = data_ranks, .micro_batches = micro_batches[choice[2]], .stage = choice[3], .steps = 2};
    whole.samples = int64_t{2} * data_ranks * whole.micro_batches;
    whole.recompute_every = choice[5];
    whole.precision = choice[6] == 0 ? Precision::fp32 : Precision::bf16;
    whole.tied = choice[7] == 0;
    whole.reduce_every = choice[8] == 0 ? "step" : "micro_batch";
    SCOPED_TRACE(testing::Message() << pipeline.name << ", " << ranks << " x " << data_ranks << " ranks, " << whole.micro_batches
                                    << " micro-batches, stage " << whole.stage << ", recompute " << whole.recompute_every
                                    << (choice[6] == 0 ? ", fp32" : ", bf16") << (whole.tied ? ", tied, " : ", untied, ")
                                    << whole.reduce_every);
    expect_exact(pipeline, whole);
    if (HasFailure()) return;
  }
}

INSTANTIATE_TEST_SUITE_P(Schedules, Exact, testing::Range(0, kParts));

TEST(ExactPartitions, UnevenAndEmptyStages) {
  const std::vector<std::vector<int>> partitions{{5, 0, 0}, {0, 5, 0}, {0, 0, 5}, {1, 3, 1}, {4, 0, 1}, {2, 1, 2}};
  for (const auto& counts : partitions) {
    for (const char* schedule : {"one_f_one_b", "zb_h1"}) {
      SCOPED_TRACE(testing::Message() << schedule << " " << testing::PrintToString(counts));
      expect_exact({.ranks = 3, .name = schedule, .partition = Value::List(counts.begin(), counts.end())},
                   {.ranks = 1, .micro_batches = 4, .stage = 1, .steps = 2});
    }
  }
}

TEST(ExactPartitions, DropoutAndFrozenLayers) {
  Config whole{.ranks = 2, .micro_batches = 3, .stage = 3, .reduce_every = "step", .dropout = 0.1, .steps = 2};
  whole.frozen = R"(^blocks\.1\.)";
  expect_exact({.ranks = 2, .name = "zb_v"}, whole);
}

}  // namespace
}  // namespace zt::test
