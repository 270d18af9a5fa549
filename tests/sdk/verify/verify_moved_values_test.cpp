// The verifier's errors about values and graphs that leave the memory until their backward.
#include <gtest/gtest.h>

#include "sdk/program/program_models.h"
#include "verify_support.h"

namespace zt::test {
namespace {

const Lines kMoved{"COUNT",                                        // 0
                   "F 0 0",                                        // 1
                   "F 1 0 keep=inputs",                            // 2
                   "EVICT_VALUE 0 0 what=value home=file slot=1",  // 3
                   "F 2 0",                                        // 4
                   "EVICT_VALUE 2 0 what=graph home=file slot=2",  // 5
                   "FETCH_VALUE 2 0 what=graph home=file slot=2",  // 6
                   "B 2 0",                                        // 7
                   "FETCH_VALUE 0 0 what=value home=file slot=1",  // 8
                   "R 1 0",                                        // 9
                   "B 1 0",                                        // 10
                   "B 0 0",                                        // 11
                   "NORM",                                         // 12
                   "STEP 0",                                       // 13
                   "STEP 1",                                       // 14
                   "STEP 2"};                                      // 15

RankProgram program_with_values(const Lines& lines) {
  RankProgram program{.units = std::vector<UnitPlan>(3), .actions = {}};
  for (const std::string& line : lines) program.actions.push_back(parse_action(line));
  return program;
}

void expect_values_refused(const Edit& edit, int step, const std::string& reason) {
  Lines lines = kMoved;
  edit(lines);
  SCOPED_TRACE(reason);
  expect_refusal(verify_all(chain(1), MeshShape(), {program_with_values(lines)}), step, reason);
}

TEST(MovedValues, AreAcceptedWhereTheyComeBack) {
  EXPECT_EQ(text_of(verify_all(chain(1), MeshShape(), {program_with_values(kMoved)})), "");
}

TEST(MovedValues, AreBackForTheirUse) {
  expect_values_refused(erase(8), 8, "it reads the output of position 0 ('embed'), which action 3 (EVICT_VALUE 0 0");
  expect_values_refused(erase(6), 6, "it needs the graph of position 2 ('head'), which action 5 (EVICT_VALUE 2 0");
  expect_values_refused(replace(2, "F 1 0"), 9, "keeps its graph, so there is nothing to recompute");
  // The graph of position 1 refers to its input.
  expect_values_refused(
      [](Lines& lines) {
        lines[2] = "F 1 0";
        lines[9] = "B 1 0";
        lines[10] = "FETCH_VALUE 0 0 what=value home=file slot=1";
        lines.erase(lines.begin() + 8);
      },
      8, "it needs the value of position 0 ('embed'), which action 3");
}

TEST(MovedValues, LeaveAndComeBackOnce) {
  expect_values_refused(insert(4, kMoved[3]), 4, "action 3 (EVICT_VALUE 0 0");
  expect_values_refused(insert(9, kMoved[8]), 9, "it brings back what is in memory");
  expect_values_refused(insert(2, "EVICT_VALUE 1 0 what=value home=file slot=0"), 2, "there is no value of position 1");
  expect_values_refused(insert(3, "EVICT_VALUE 1 0 what=graph home=file slot=0"), 3, "which has to keep the graph");
  expect_values_refused(insert(11, kMoved[5]), 11, "there is no graph of position 2");
}

TEST(MovedValues, AreNotWrittenWhileTheyAreAway) {
  register_kind({.name = "CHANGE_VALUE",
                 .target = Index::position,
                 .has_micro_batch = true,
                 .doc = "",
                 .resources = [](const Action& action, const ModelInfo&) {
                   return Resources{{}, {{resource::value, action.target, action.micro_batch}}};
                 }});
  expect_values_refused(insert(4, "CHANGE_VALUE 0 0"), 4, "it writes the value of position 0 ('embed'), which action 3");
}

// A send may last until the other rank receives, which may wait for what comes after.
TEST(MovedValues, StayWhereTheyAreSent) {
  register_kind(
      {.name = "SEND_ALONE",
       .target = Index::position,
       .has_micro_batch = true,
       .doc = "",
       .resources =
           [](const Action& action, const ModelInfo&) {
             return Resources{{{resource::value, action.target, action.micro_batch}}, {}};
           },
       .message = [](const Action&) { return std::optional<Message>({.channel = "alone", .axes = {"pp"}, .is_send = true}); }});
  expect_values_refused(insert(3, "SEND_ALONE 0 0"), 4, "action 3 (SEND_ALONE 0 0) sends it");
}

TEST(MovedValues, HavePlacesOfTheirOwn) {
  expect_values_refused(replace(3, "EVICT_VALUE 0 0 what=value home=device slot=1"), 3,
                        "home=device: data in the device's memory do not move");
  expect_values_refused(replace(3, "EVICT_VALUE 0 0 what=value home=file"), 3, "slot=-1");
  expect_values_refused(replace(3, "EVICT_VALUE 0 0 what=values home=file slot=1"), 3, "value");
  expect_values_refused(replace(3, "EVICT_VALUE 0 0 what=value home=file slot=1 least=-1"), 3, "least=-1");
}

}  // namespace
}  // namespace zt::test
