// The pass that splits backwards, and what the verifier says of I and W.
#include "zt/program/split_backward.h"

#include <gtest/gtest.h>

#include "sdk/program/program_models.h"
#include "sdk/verify/verify_support.h"
#include "support/message.h"

namespace zt::test {
namespace {

// A chain whose head adds a loss.
ModelInfo model_with_loss() {
  ModelInfo model = chain(1);
  model.positions.back().losses = {LossInfo{}};
  return model;
}

RankProgram split(const ModelInfo& model) {
  return make_split_backward()->apply(base_program(model, Mode::train, 1), model, {});
}

Lines texts_of(const RankProgram& program) {
  Lines lines;
  for (const Action& action : program.actions) lines.push_back(action_text(action));
  return lines;
}

std::string refusal_of(const Edit& edit) {
  RankProgram program = split(model_with_loss());
  Lines lines = texts_of(program);
  edit(lines);
  program.actions.clear();
  for (const std::string& line : lines) program.actions.push_back(parse_action(line));
  return text_of(verify_all(model_with_loss(), dp(1), {program}));
}

TEST(SplitBackward, KeepsBWhereALossIsAdded) {
  EXPECT_EQ(texts_of(split(model_with_loss())), (Lines{"COUNT", "F 0 0", "F 1 0", "F 2 0", "B 2 0", "I 1 0", "W 1 0", "I 0 0",
                                                       "W 0 0", "NORM", "STEP 0", "STEP 1", "STEP 2"}));
}

TEST(SplitBackward, KeepsBOfFrozenLayersAndLayersWithoutParameters) {
  const RankProgram program = split(mixed_model());
  std::set<int> whole;
  for (const Action& action : program.actions) {
    if (action.kind == Kinds::get().backward) whole.insert(action.target);
  }
  EXPECT_EQ(whole, (std::set<int>{3, 4}));
}

TEST(SplitBackward, LeavesOtherModesAlone) {
  const RankProgram eval = base_program(chain(1), Mode::eval, 1);
  EXPECT_EQ(make_split_backward()->apply(eval, chain(1), {}).text(), eval.text());
}

TEST(SplitBackward, SumsMustComeInTheOrderOfMicroBatches) {
  const ModelInfo model = model_with_loss();
  for (const KindId kind : {Kinds::get().weight_grad, Kinds::get().backward}) {
    RankProgram program = kind == Kinds::get().weight_grad
                              ? make_split_backward()->apply(base_program(model, Mode::train, 2), model, {})
                              : base_program(model, Mode::train, 2);
    std::vector<Action> moved;  // those of micro-batch 0, put after those of micro-batch 1
    std::erase_if(program.actions, [&](const Action& action) {
      const bool moves = action.kind == kind && action.target == 0 && action.micro_batch == 0;
      if (moves) moved.push_back(action);
      return moves;
    });
    const auto norm = std::ranges::find(program.actions, Kinds::get().norm, &Action::kind);
    program.actions.insert(norm, moved.begin(), moved.end());
    EXPECT_CONTAINS(text_of(verify_all(model, dp(1), {program})), "gradients are summed over micro-batches in ascending order");
  }
}

TEST(SplitBackward, WMayStandAnywhereAfterItsI) {
  EXPECT_EQ(refusal_of([](Lines&) {}), "");
  EXPECT_EQ(refusal_of(both(erase(6), insert(7, "W 1 0"))), "");
}

TEST(SplitBackward, NamesAWThatIsMissingRepeatedOrTooEarly) {
  EXPECT_CONTAINS(refusal_of(erase(6)), "W 1 0 is missing");
  EXPECT_CONTAINS(refusal_of(insert(7, "W 1 0")), "it repeats action 6 (W 1 0)");
  EXPECT_CONTAINS(refusal_of(swap(5, 6)), "its I has not run, which computes what it needs: put I 1 0 first");
  EXPECT_CONTAINS(refusal_of(insert(5, "W 2 0")), "it repeats action 4 (B 2 0)");
}

}  // namespace
}  // namespace zt::test
