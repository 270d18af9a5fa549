// The verifier's errors about data that lie elsewhere between their uses.
#include <gtest/gtest.h>

#include "sdk/program/program_models.h"
#include "verify_support.h"

namespace zt::test {
namespace {

// The program of one rank whose optimizer state is cut into two slices and lies in files, but for the first slice of unit 2.
const Lines kState{"COUNT",                                                // 0
                   "F 0 0",                                                // 1
                   "F 1 0",                                                // 2
                   "F 2 0",                                                // 3
                   "FETCH 0 what=state home=file part=0 parts=2 slot=0",   // 4
                   "B 2 0",                                                // 5
                   "B 1 0",                                                // 6
                   "B 0 0",                                                // 7
                   "NORM",                                                 // 8
                   "STEP 0 part=0 parts=2",                                // 9
                   "EVICT 0 what=state home=file part=0 parts=2 slot=0",   // 10
                   "FETCH 0 what=state home=file part=1 parts=2 slot=1",   // 11
                   "STEP 0 part=1 parts=2",                                // 12
                   "EVICT 0 what=state home=file part=1 parts=2 slot=1",   // 13
                   "STEP 1",                                               // 14
                   "STEP 2 part=0 parts=2",                                // 15
                   "FETCH 2 what=state home=file part=1 parts=2 slot=0",   // 16
                   "STEP 2 part=1 parts=2",                                // 17
                   "EVICT 2 what=state home=file part=1 parts=2 slot=0"};  // 18

RankProgram program_of(const Lines& lines, const std::function<void(UnitPlan&)>& change = {}) {
  RankProgram program{.units = std::vector<UnitPlan>(3), .actions = {}};
  for (const int unit : {0, 2}) {
    program.units[static_cast<size_t>(unit)].slices = 2;
    program.units[static_cast<size_t>(unit)].state_home.tier = Tier::file;
  }
  program.units[2].state_home.stays = 1;
  if (change) change(program.units[0]);
  for (const std::string& line : lines) program.actions.push_back(parse_action(line));
  return program;
}

std::vector<Refusal> refusals_of(const RankProgram& program) {
  return verify_all(chain(1), MeshShape(), {program});
}

void expect_refused(const Edit& edit, int step, const std::string& reason) {
  Lines lines = kState;
  edit(lines);
  SCOPED_TRACE(reason);
  expect_refusal(refusals_of(program_of(lines)), step, reason);
}

TEST(Movement, OfStateIsAcceptedWhereItIsComplete) {
  EXPECT_EQ(text_of(refusals_of(program_of(kState))), "");
}

TEST(Movement, IsInTheText) {
  const RankProgram program = program_of(kState);
  const std::string text = program.text();
  EXPECT_NE(text.find("unit 2 slices=2 state_home=file state_stays=1\n"), std::string::npos) << text;
  EXPECT_EQ(RankProgram::parse(text).text(), text);
  EXPECT_EQ(RankProgram::parse(text).units, program.units);
  EXPECT_NE(program_of(kState, [](UnitPlan& plan) { plan.state_home.stays = 1; }).hash(), program.hash());
}

TEST(Movement, NeedsEachSliceInMemoryForItsUse) {
  expect_refused(erase(4), 8, "it uses slice 0 of the state of unit 0 ('embed'), which lies in home=file: put a FETCH 0");
  expect_refused(swap(9, 10), 10, "it uses slice 0 of the state of unit 0 ('embed'), which action 9 (EVICT 0");
  expect_refused(replace(9, "STEP 0"), 9, "lie elsewhere in 2 slices: update the unit in slices, with parts=2");
  expect_refused(insert(15, "FETCH 2 what=state home=file part=0 parts=2 slot=3"), 15, "the first 1 slices");
}

TEST(Movement, TakesEachSliceHomeOnce) {
  expect_refused(erase(18), 16, "it leaves data in slot 0 at the end, and their changes would be lost: add an EVICT");
  expect_refused(insert(11, kState[10]), 11, "slice 0 is not in memory: put its FETCH before, or remove this");
  expect_refused(insert(5, "FETCH 0 what=state home=file part=0 parts=2 slot=7"), 5, "action 4 (FETCH 0");
  expect_refused(replace(10, "EVICT 0 what=state home=file part=0 parts=2 slot=4"), 10, "to slot 0: give slot=0");
  expect_refused(replace(10, kState[10] + " unchanged=true"), 10, "has changed it: leave unchanged out");
}

TEST(Movement, GivesEachSliceAPlaceOfItsOwn) {
  expect_refused(insert(5, "FETCH 0 what=state home=file part=1 parts=2 slot=0"), 5, "slot 0 holds what action 4");
  expect_refused(replace(4, "FETCH 0 what=state home=file part=0 parts=2 slot=1024"), 4, "slot=1024: give the number of a place");
  expect_refused(replace(4, "FETCH 0 what=state home=file part=0 parts=2"), 4, "slot=-1: give the number of a place in memory");
}

// The update of slice 0 of unit 0 works in the host's memory.
Lines on_host() {
  Lines lines = kState;
  for (const int line : {4, 9, 10}) lines[static_cast<size_t>(line)] += " memory=host";
  return lines;
}

TEST(Movement, BringsSlicesToTheMemoryInWhichUpdatesWork) {
  EXPECT_EQ(text_of(refusals_of(program_of(on_host()))), "");
  const auto expect = [](const Edit& edit, int step, const std::string& reason) {
    Lines lines = on_host();
    edit(lines);
    SCOPED_TRACE(reason);
    expect_refusal(refusals_of(program_of(lines)), step, reason);
  };
  expect(replace(9, kState[9]), 9, "it works in the memory of the device, and action 4 (FETCH 0");
  expect(replace(4, kState[4]), 9, "it works in the memory of the host, and action 4 (FETCH 0");
  expect(replace(10, kState[10]), 10, "has brought it to the memory of the host: give memory as there");
  expect(replace(14, "STEP 1 memory=host"), 14, "memory=host, but this optimizer state stays in the device's memory");
  expect(replace(15, "STEP 2 part=0 parts=2 memory=host"), 15, "memory=host, but this optimizer state stays");
  expect(replace(9, "STEP 0 part=0 parts=2 memory=hosts"), 9, "unknown memory 'hosts'");
}

TEST(Movement, FitsThePlanOfTheUnit) {
  expect_refused(replace(4, "FETCH 0 what=state home=host part=0 parts=2 slot=0"), 4, "lie in home=file");
  expect_refused(replace(4, "FETCH 0 what=state home=device part=0 parts=2 slot=0"), 4,
                 "data in the device's memory do not move");
  expect_refused(replace(4, "FETCH 0 what=state home=file part=0 parts=3 slot=0"), 4, "cut into 2 slices: give parts=2");
  expect_refused(replace(4, "FETCH 0 what=state home=file slot=0"), 4, "cut into 2 slices: give parts=2");
  expect_refused(replace(4, "FETCH 0 what=state home=file part=2 parts=2 slot=0"), 4, "slices are counted from 0");
  expect_refused(replace(4, "FETCH 1 what=state home=file slot=0"), 4,
                 "it moves the state of unit 1 ('blocks.0'), which no home holds");
  expect_refused(replace(4, "FETCH 0 what=states home=file part=0 parts=2 slot=0"), 4, "unknown data 'states'");
  expect_refused(replace(4, kState[4] + " master=true"), 4, "the parameters: leave out master=true");
  expect_refused(replace(4, kState[4] + " squares=[]"), 4, "squares");
}

TEST(Movement, NeedsPlansThatFit) {
  const auto refused = [](const std::function<void(UnitPlan&)>& change) {
    return text_of(refusals_of(program_of(kState, change)));
  };
  EXPECT_NE(
      refused([](UnitPlan& plan) { plan.state_home.stays = 2; }).find("lets 2 slices of its state stay in memory: give 0 to 1"),
      std::string::npos);
  EXPECT_NE(refused([](UnitPlan& plan) { plan.slices = 0; }).find("cuts it into 0 slices: give 1 or more"), std::string::npos);
  EXPECT_NE(refused([](UnitPlan& plan) { plan.params_home.tier = Tier::file; }).find("but they are whole: shard them"),
            std::string::npos);
}

// The gradients of unit 1 lie in files.
const Lines kGradients{"COUNT",                                                       // 0
                       "F 0 0",                                                       // 1
                       "F 1 0",                                                       // 2
                       "F 2 0",                                                       // 3
                       "B 2 0",                                                       // 4
                       "B 1 0",                                                       // 5
                       "EVICT 1 what=grads home=file slot=0 summed=true squares=[]",  // 6
                       "B 0 0",                                                       // 7
                       "NORM",                                                        // 8
                       "STEP 0",                                                      // 9
                       "FETCH 1 what=grads home=file slot=0",                         // 10
                       "STEP 1",                                                      // 11
                       "EVICT 1 what=grads home=file slot=0 unchanged=true",          // 12
                       "STEP 2"};                                                     // 13

void expect_gradient_refused(const Edit& edit, int step, const std::string& reason) {
  Lines lines = kGradients;
  edit(lines);
  RankProgram program{.units = std::vector<UnitPlan>(3), .actions = {}};
  program.units[1].grads_home.tier = Tier::file;
  for (const std::string& line : lines) program.actions.push_back(parse_action(line));
  SCOPED_TRACE(reason);
  if (step < -1) EXPECT_EQ(text_of(refusals_of(program)), "");
  else expect_refusal(refusals_of(program), step, reason);
}

TEST(Movement, OfGradientsAddsTheirSquaresOnce) {
  expect_gradient_refused([](Lines&) {}, -2, "");
  expect_gradient_refused(replace(6, "EVICT 1 what=grads home=file slot=0 summed=true"), 8, "its squares are missing");
  expect_gradient_refused(replace(6, "EVICT 1 what=grads home=file slot=0 summed=true squares=[] unchanged=true"), 6,
                          "no home has the sum yet");
  expect_gradient_refused(swap(5, 6), 6, "it changes the gradient of unit 1 ('blocks.0'), which action 5");
  expect_gradient_refused(replace(6, "EVICT 1 what=grads home=file slot=0 summed=true squares=[\"dp\"]"), 6,
                          "the axes of action 8 (NORM) are others: give squares=[]");
  expect_gradient_refused(insert(8, kGradients[6]), 8, "has added the squares already");
  expect_gradient_refused(erase(10), 10, "it uses slice 0 of the grads of unit 1");
  expect_gradient_refused(replace(10, kGradients[10] + " fresh=true"), 11, "has read nothing (fresh=true)");
}

}  // namespace
}  // namespace zt::test
