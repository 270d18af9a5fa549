// pipe.check names the mistakes of a schedule, with rank and step.
#include "schedule/check.h"

#include <gtest/gtest.h>

#include <functional>

#include "schedule/recipes.h"
#include "support/message.h"
#include "zt/base/error.h"

namespace zt::test {
namespace {

using namespace pipe;

PipelineStep step(const char* text) {
  return {parse_task(text, "test")};
}

struct Broken {
  const char* name;
  std::function<void(PipelineSchedule&)> edit;
  const char* text;  // of the first mistake, or a part of it
};

std::function<void(PipelineSchedule&)> insert(int rank, int at, const char* task) {
  return [=](PipelineSchedule& s) { s.ranks[rank].insert(s.ranks[rank].begin() + at, step(task)); };
}
std::function<void(PipelineSchedule&)> erase(int rank, int at) {
  return [=](PipelineSchedule& s) { s.ranks[rank].erase(s.ranks[rank].begin() + at); };
}
std::function<void(PipelineSchedule&)> replace(int rank, int at, const char* task) {
  return [=](PipelineSchedule& s) { s.ranks[rank][at] = step(task); };
}
std::function<void(PipelineSchedule&)> swap(int rank, int a, int b) {
  return [=](PipelineSchedule& s) { std::swap(s.ranks[rank][a], s.ranks[rank][b]); };
}

// zb_h1 of 2 ranks and 3 micro-batches:
// rank 0: 0F0 0F1 0I0 0W0 0F2 0I1 0W1 0I2 0W2
// rank 1: 1F0 1I0 1F1 1I1 1W0 1F2 1I2 1W1 1W2
class BrokenSchedules : public testing::TestWithParam<Broken> {};

TEST_P(BrokenSchedules, AreNamed) {
  PipelineSchedule schedule = make_schedule("zb_h1", {2, 1, 3});
  ASSERT_TRUE(check(schedule).empty());
  GetParam().edit(schedule);
  const auto mistakes = check(schedule);
  ASSERT_FALSE(mistakes.empty()) << "accepted";
  EXPECT_CONTAINS(mistakes[0].text(), GetParam().text);
}

INSTANTIATE_TEST_SUITE_P(
    Check, BrokenSchedules,
    testing::Values(
        Broken{"StageOnTwoRanks", insert(1, 0, "0F0"),
               "rank 1, step 1 (0F0) stage 0 is on rank 0: a stage runs on one rank only"},
        Broken{"ForwardMissing", erase(0, 0), "rank 0: 0F0 is missing: each stage runs once per micro-batch"},
        Broken{"ForwardTwice", insert(0, 1, "0F0"), "rank 0, step 2 (0F0) it repeats the F of step 1: remove one"},
        Broken{"InputGradTwice", insert(0, 5, "0I0"), "(0I0) it repeats the backward of step 3"},
        Broken{"WeightGradMissing", erase(0, 3), "is missing: each I has a W"},
        Broken{"WeightGradTwice", insert(0, 5, "0W0"), "it repeats the W of step 4"},
        Broken{"WeightGradBeforeInputGrad", swap(0, 2, 3), "(0W0) its I does not come before: put 0I0 first"},
        Broken{"BackwardAndWeightGrad", replace(0, 2, "0B0"), "its backward is a B, which has computed the weights' gradients"},
        Broken{"BackwardBeforeForward", swap(1, 0, 1), "rank 1, step 1 (1I0) its F does not come before"},
        Broken{"NoSuchMicroBatch", replace(0, 0, "0F3"), "there is no micro-batch 3: the schedule has 3, counted from 0"},
        Broken{"NoSuchStage", replace(0, 0, "2F0"), "there is no stage 2: the schedule has 2, counted from 0"},
        Broken{"OtherOrderOfSums", [](PipelineSchedule& s) { std::swap(s.ranks[1].back(), *(s.ranks[1].end() - 2)); },
               "it comes after that of micro-batch 2: gradients of a stage are summed in ascending order"},
        Broken{"PlacedNowhere", [](PipelineSchedule& s) { s.rank_of_stage[1] = 2; },
               "stage 1 is placed on rank 2, and there are 2 ranks"},
        Broken{"NoMicroBatches", [](PipelineSchedule& s) { s.micro_batches = 0; }, "0 micro-batches: each must be at least 1"}),
    [](const auto& info) { return info.param.name; });

TEST(Check, NamesACircle) {
  PipelineSchedule schedule = make_schedule("gpipe", {2, 1, 2});
  schedule.ranks[0] = {step("0F0"), step("0B0"), step("0F1"), step("0B1")};
  const auto mistakes = check(schedule);
  ASSERT_EQ(mistakes.size(), 2u);
  EXPECT_EQ(
      mistakes[0].text(),
      "rank 0, step 2 (0B0) it waits for ever for the backward of stage 1, micro-batch 0, which rank 1 runs after its step 2; "
      "the ranks 0, 1 wait for each other in a circle");
}

TEST(Check, ComparesActivationsWithABound) {
  const PipelineSchedule schedule = make_schedule("gpipe", {2, 1, 4});
  EXPECT_TRUE(check(schedule, 4).empty());
  ASSERT_EQ(check(schedule, 3).size(), 2u);
  EXPECT_EQ(check(schedule, 3)[0].text(), "rank 0: it holds up to 4 activations, and 3 are allowed");
}

// A list of 1F1B for 4 ranks with fewer micro-batches than warm-up forwards, made by hand without dropping.
TEST(Check, AListForMoreMicroBatches) {
  PipelineSchedule schedule = make_schedule("one_f_one_b", {4, 1, 4});
  schedule.micro_batches = 2;
  EXPECT_CONTAINS(check(schedule)[0].text(), "there is no micro-batch 2: the schedule has 2");
}

TEST(Check, RefusesUnknownNamesAndNumbers) {
  EXPECT_CONTAINS(message_of<Misuse>([] { make_schedule("1f1b", {2, 1, 2}); }), "there is no pipeline schedule '1f1b'");
  EXPECT_CONTAINS(message_of<Misuse>([] {
                    make_schedule("zb_v", {2, 3, 2});
                  }),
                  "the schedule 'zb_v' has 2 chunks per rank, got 3");
  EXPECT_CONTAINS(message_of<Misuse>([] { make_schedule("gpipe", {0, 1, 2}); }), "a pipeline schedule of 0 ranks");
}

}  // namespace
}  // namespace zt::test
