// Slots: which units share a buffer.
#include "zt/plan/slots.h"

#include <gtest/gtest.h>

#include "sdk/program/program_models.h"

namespace zt::test {
namespace {

std::vector<Unit> units_of(const std::vector<int64_t>& sizes) {
  std::vector<Unit> units;
  for (const int64_t size : sizes) {
    Unit unit;
    unit.index = static_cast<int>(units.size());
    unit.layout = FlatLayout(size, 1);
    units.push_back(unit);
  }
  return units;
}

RankProgram program_of(const std::string& actions, int units) {
  RankProgram program = RankProgram::parse("program mode=train micro_batches=1 units=" + std::to_string(units) + "\n" + actions);
  for (UnitPlan& plan : program.units) plan = plan_of_stage(3);
  return program;
}

Slots parameters(const std::vector<std::string>& actions, const std::vector<int64_t>& sizes) {
  std::vector<RankProgram> programs;
  for (const auto& text : actions) programs.push_back(program_of(text, static_cast<int>(sizes.size())));
  std::vector<const RankProgram*> pointers;
  for (const RankProgram& program : programs) pointers.push_back(&program);
  return parameter_slots(pointers, chain(static_cast<int>(sizes.size())), units_of(sizes));
}

TEST(Slots, UnitsInTurnsShareOneBuffer) {
  const Slots slots = parameters({"UNSHARD 0\nRESHARD 0\nUNSHARD 1\nRESHARD 1\nUNSHARD 0\nRESHARD 0\n"}, {256, 1024});
  EXPECT_EQ(slots.of_unit, (std::vector<int>{0, 0}));
  EXPECT_EQ(slots.sizes, (std::vector<int64_t>{1024}));
  EXPECT_EQ(slots.total(), 1024);
}

TEST(Slots, UnitsHeldAtTheSameTimeHaveTheirOwnBuffers) {
  const Slots slots = parameters({"UNSHARD 0\nUNSHARD 1\nRESHARD 0\nUNSHARD 2\nRESHARD 1\nRESHARD 2\n"}, {256, 256, 256});
  EXPECT_EQ(slots.of_unit, (std::vector<int>{0, 1, 0}));
}

TEST(Slots, AllProgramsUseTheSameBuffers) {
  const Slots slots =
      parameters({"UNSHARD 0\nRESHARD 0\nUNSHARD 1\nRESHARD 1\n", "UNSHARD 0\nUNSHARD 1\nRESHARD 1\nRESHARD 0\n"}, {256, 256});
  EXPECT_EQ(slots.of_unit, (std::vector<int>{0, 1}));
}

TEST(Slots, AUnitTakesTheFreeSlotThatFitsBest) {
  // Units 0 and 1 are held at the same time. Unit 2 fits into the slot of unit 1. Unit 3 fits into none, so the larger slot
  // grows.
  const Slots slots = parameters({"UNSHARD 0\nUNSHARD 1\nRESHARD 0\nRESHARD 1\nUNSHARD 2\nRESHARD 2\nUNSHARD 3\nRESHARD 3\n"},
                                 {2048, 512, 256, 4096});
  EXPECT_EQ(slots.of_unit, (std::vector<int>{0, 1, 1, 0}));
  EXPECT_EQ(slots.sizes, (std::vector<int64_t>{4096, 512}));
}

TEST(Slots, UnitsThatAreNotShardedHaveNoSlot) {
  RankProgram program = program_of("UNSHARD 0\nRESHARD 0\n", 2);
  program.units[0].params = Residence::whole;
  const RankProgram* pointer = &program;
  EXPECT_EQ(parameter_slots({&pointer, 1}, chain(2), units_of({256, 256})).of_unit, (std::vector<int>{-1, -1}));
}

TEST(Slots, GradientsTakeTurnsInTwoBuffers) {
  const ModelInfo model = chain(2);
  RankProgram program = base_program(model, Mode::train, 1);
  for (UnitPlan& plan : program.units) plan = plan_of_stage(2);
  std::vector<Action> actions;
  for (const Action& action : program.actions) {
    actions.push_back(action);
    if (action.kind == Kinds::get().backward) actions.push_back({.kind = Kinds::get().reduce_grad, .target = action.target});
  }
  program.actions = actions;
  const Slots slots = gradient_slots(program, model, units_of({256, 256, 256, 256}));
  EXPECT_EQ(slots.sizes.size(), 2U) << "one reduction overlaps with one backward";
  for (size_t unit = 1; unit < 4; ++unit) EXPECT_NE(slots.of_unit[unit], slots.of_unit[unit - 1]);
  for (Action& action : program.actions) {
    if (action.kind == Kinds::get().reduce_grad) action.attrs["wait"] = true;
  }
  EXPECT_EQ(gradient_slots(program, model, units_of({256, 256, 256, 256})).sizes.size(), 1U) << "no reduction overlaps";
  program.units[2].grads = Residence::whole;
  EXPECT_EQ(gradient_slots(program, model, units_of({256, 256, 256, 256})).of_unit[2], -1);
}

}  // namespace
}  // namespace zt::test
