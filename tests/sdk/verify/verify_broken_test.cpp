// About sixty broken programs. Each must be refused with rank, step and reason.
#include <gtest/gtest.h>

#include "sdk/program/program_models.h"
#include "verify_support.h"

namespace zt::test {
namespace {

enum class On { all_ranks, rank_1 };

struct Broken {
  const char* name;
  Edit edit;
  On on;
  int rank, step;      // of the first refusal
  const char* reason;  // part of it
};

class BrokenPrograms : public testing::TestWithParam<Broken> {};

TEST_P(BrokenPrograms, AreRefused) {
  const Broken& broken = GetParam();
  Lines edited = stage_1_lines();
  broken.edit(edited);
  std::vector<RankProgram> programs(2, from_lines(stage_1_lines()));
  programs[1] = from_lines(edited);
  if (broken.on == On::all_ranks) programs[0] = programs[1];
  const auto refusals = verify_all(chain(1), dp(2), programs);
  ASSERT_FALSE(refusals.empty()) << "accepted";
  EXPECT_EQ(refusals[0].rank, broken.rank) << text_of(refusals);
  EXPECT_EQ(refusals[0].step, broken.step) << text_of(refusals);
  EXPECT_NE(refusals[0].reason.find(broken.reason), std::string::npos) << text_of(refusals);
  const std::string action = broken.step < 0 ? "" : action_text(programs[broken.rank].actions[broken.step]);
  EXPECT_EQ(refusals[0].action, action);
}

const On kAll = On::all_ranks;
const On kOne = On::rank_1;

INSTANTIATE_TEST_SUITE_P(
    Values, BrokenPrograms,
    testing::Values(
        Broken{"BackwardBeforeForward", swap(3, 4), kAll, 0, 3, "before its F, which comes later, as action 4 (F 2 0)"},
        Broken{"BackwardBeforeItsReaders", swap(4, 6), kAll, 0, 4,
               "from position 2 ('head'), whose B 2 0 comes later, as action 6"},
        Broken{"ForwardBeforeItsInput", swap(2, 3), kAll, 0, 2,
               "reads the output of position 1 ('blocks.0'), whose F 1 0 comes later"},
        Broken{"ForwardTwice", insert(3, "F 1 0"), kAll, 0, 3, "it repeats action 2 (F 1 0)"},
        Broken{"BackwardTwice", insert(5, "B 2 0"), kAll, 0, 5, "it repeats action 4 (B 2 0): gradients would be added twice"},
        Broken{"ForwardMissing", erase(2), kAll, 0, -1, "F 1 0 is missing"},
        Broken{"BackwardMissing", both(erase(9), erase(8)), kAll, 0, -1, "B 0 0 is missing"},
        Broken{"BackwardAfterItsInputWasFreed", both(erase(8), insert(4, "B 0 0")), kAll, 0, 4,
               "from position 1 ('blocks.0'), whose B 1 0"},
        Broken{"NothingKept", replace(2, "F 1 0 keep=none"), kAll, 0, 2,
               "it keeps nothing, but action 6 (B 1 0) needs its graph"},
        Broken{"RecomputeMissing", replace(2, "F 1 0 keep=inputs"), kAll, 0, 6, "kept only its inputs: put an R before"},
        Broken{"RecomputeNotNeeded", insert(6, "R 1 0"), kAll, 0, 6, "action 2 (F 1 0) keeps its graph"},
        Broken{"RecomputeAfterBackward", both(replace(2, "F 1 0 keep=inputs"), insert(7, "R 1 0")), kAll, 0, 6,
               "put an R before"},
        Broken{"RecomputeBeforeForward", insert(1, "R 1 0"), kAll, 0, 1, "before its F, which comes later, as action 3"},
        Broken{"RecomputeTwice", both(replace(2, "F 1 0 keep=inputs"), both(insert(6, "R 1 0"), insert(6, "R 1 0"))), kAll, 0, 7,
               "it repeats action 6 (R 1 0)"}),
    [](const auto& info) { return info.param.name; });

INSTANTIATE_TEST_SUITE_P(
    Gradients, BrokenPrograms,
    testing::Values(
        Broken{"ReductionMissing", erase(7), kAll, 0, 9, "the gradient of unit 1 ('blocks.0') was not summed over 'dp'"},
        Broken{"ReductionMissingOnOneRank", erase(7), kOne, 1, 9, "the gradient of unit 1 ('blocks.0') was not summed over 'dp'"},
        Broken{"ReductionTwice", insert(8, "REDUCE_GRAD 1 axes=[\"dp\"]"), kAll, 0, 8, "summed by action 7"},
        Broken{"ReductionBeforeGradient", swap(4, 5), kAll, 0, 4, "no gradient of unit 2 ('head') was written before it"},
        Broken{"ReductionAfterNorm", swap(9, 10), kAll, 0, 9, "action 10 (REDUCE_GRAD 0 axes=[\"dp\"]) comes after it"},
        Broken{"GradientAfterNorm", both(erase(10), insert(8, "NORM axes=[\"dp\"]")), kAll, 0, 8, "comes after it"},
        Broken{"SumWithoutStart", replace(7, "REDUCE_GRAD 1 axes=[\"dp\"] sum=last"), kAll, 0, 7,
               "the first part needs sum=first"},
        Broken{"SumWithoutEnd", replace(7, "REDUCE_GRAD 1 axes=[\"dp\"] sum=first"), kAll, 0, 10,
               "its last REDUCE_GRAD needs sum=last"},
        Broken{"StepBeforeNorm", swap(10, 11), kAll, 0, 10, "no NORM comes before it"},
        Broken{"StepTwice", insert(12, "STEP 0"), kAll, 0, 12, "it repeats action 11 (STEP 0)"},
        Broken{"StepMissing", both(erase(14), erase(13)), kAll, 0, -1, "STEP 1 is missing"},
        Broken{"NormMissing", erase(10), kAll, 0, -1, "NORM is missing"},
        Broken{"NormTwice", insert(11, "NORM axes=[\"dp\"]"), kAll, 0, 11, "it repeats action 10"},
        Broken{"NormOfOneRank", replace(10, "NORM"), kAll, 0, 10, "gradients are summed over 'dp' but this action is not"},
        Broken{"CountMissing", erase(0), kAll, 0, -1, "COUNT is missing"},
        Broken{"CountLate", swap(0, 1), kAll, 0, 1, "put COUNT first"},
        Broken{"CountTwice", insert(1, "COUNT axes=[\"dp\"]"), kAll, 0, 1, "it repeats action 0"},
        Broken{"CountOfOneRank", replace(0, "COUNT"), kAll, 0, 0, "scaled by one rank's part"}),
    [](const auto& info) { return info.param.name; });

INSTANTIATE_TEST_SUITE_P(
    Residency, BrokenPrograms,
    testing::Values(
        Broken{"UnshardMissing", erase(14), kAll, 0, 13, "leaves the parameters of unit 1 ('blocks.0') out of date at the end"},
        Broken{"UseAfterReshard", insert(2, "RESHARD 1"), kAll, 0, 3,
               "which action 2 (RESHARD 1) has left freed: put UNSHARD 1 between"},
        Broken{"BackwardAfterReshard", insert(6, "RESHARD 1"), kAll, 0, 7, "which action 6 (RESHARD 1) has left freed"},
        Broken{"FreedAtTheEnd", insert(17, "RESHARD 2"), kAll, 0, 17,
               "leaves the parameters of unit 2 ('head') freed at the end"},
        Broken{"FreedTwice", both(insert(2, "RESHARD 1"), insert(2, "RESHARD 1")), kAll, 0, 3,
               "action 2 (RESHARD 1) has freed unit 1"},
        Broken{"UnshardTwice", insert(13, "UNSHARD 0 axes=[\"dp\"]"), kAll, 0, 13, "present and current already"},
        Broken{"UnshardOfNothingNew", insert(1, "UNSHARD 1 axes=[\"dp\"]"), kAll, 0, 1, "present and current already"}),
    [](const auto& info) { return info.param.name; });

INSTANTIATE_TEST_SUITE_P(
    Fields, BrokenPrograms,
    testing::Values(
        Broken{"PositionOutOfRange", replace(2, "F 3 0"), kAll, 0, 2, "there is no position 3: the model has 3, counted from 0"},
        Broken{"PositionNegative", replace(2, "F -1 0"), kAll, 0, 2, "there is no position -1"},
        Broken{"UnitOutOfRange", replace(11, "STEP 3"), kAll, 0, 11, "there is no unit 3: the model has 3"},
        Broken{"BucketOutOfRange", replace(7, "REDUCE_GRAD 1 axes=[\"dp\"] units=[5]"), kAll, 0, 7, "there is no unit 5"},
        Broken{"BucketRepeats", replace(7, "REDUCE_GRAD 1 axes=[\"dp\"] units=[1]"), kAll, 0, 7,
               "unit 1 is in this bucket twice"},
        Broken{"MicroBatchOutOfRange", replace(6, "B 1 1"), kAll, 0, 6, "there is no micro-batch 1: the program has 1"},
        Broken{"Peer", replace(1, "F 0 0 peer=1"), kAll, 0, 1, "F has no attribute 'peer'"},
        Broken{"WaitThatIsNoFlag", replace(5, "REDUCE_GRAD 2 axes=[\"dp\"] wait=often"), kAll, 0, 5,
               "attribute 'wait' is a string: give true or false"},
        Broken{"UnknownKeep", replace(1, "F 0 0 keep=input"), kAll, 0, 1,
               "unknown value 'input' of keep: did you mean 'inputs'?"},
        Broken{"UnknownSum", replace(7, "REDUCE_GRAD 1 axes=[\"dp\"] sum=frist"), kAll, 0, 7, "did you mean 'first'?"},
        Broken{"UnknownAttribute", replace(1, "F 0 0 kep=none"), kAll, 0, 1, "F has no attribute 'kep': did you mean 'keep'?"},
        Broken{"UnknownAxis", replace(0, "COUNT axes=[\"pp\"]"), kAll, 0, 0, "the mesh dp=2 has no axis 'pp'"},
        Broken{"AxisTwice", replace(0, "COUNT axes=[\"dp\",\"dp\"]"), kAll, 0, 0, "axis 'dp' is given twice"},
        Broken{"AxesOfAnotherType", replace(0, "COUNT axes=dp"), kAll, 0, 0, "attribute 'axes' is a string: give a list"},
        Broken{"AxesMissing", replace(7, "REDUCE_GRAD 1"), kAll, 0, 7, "it names no axis to communicate on"}),
    [](const auto& info) { return info.param.name; });

INSTANTIATE_TEST_SUITE_P(Collectives, BrokenPrograms,
                         testing::Values(Broken{"OnlyOneRankReduces", extra_reduction_at(1), kOne, 1, 1,
                                                "does not match the operation of rank 0, action 5 (REDUCE_GRAD 2"},
                                         Broken{"OnlyOneRankReducesAtTheEnd", extra_reduction_at(17), kOne, 1, 17,
                                                "waits for ever on axis dp: rank 0 ends without this operation"},
                                         Broken{"AnotherOrder", both(erase(5), insert(7, "REDUCE_GRAD 2 axes=[\"dp\"]")), kOne, 1,
                                                6, "does not match the operation of rank 0, action 5 (REDUCE_GRAD 2"},
                                         Broken{"OtherBuckets",
                                                both(replace(7, "REDUCE_GRAD 1 axes=[\"dp\"] units=[2]"), erase(5)), kOne, 1, 6,
                                                "does not match the operation of rank 0, action 5 (REDUCE_GRAD 2"}),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace zt::test
