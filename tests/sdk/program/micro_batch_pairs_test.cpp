// The pass that runs micro-batches in pairs.
#include "zt/program/micro_batch_pairs.h"

#include <gtest/gtest.h>

#include "sdk/program/program_models.h"
#include "sdk/verify/verify_support.h"
#include "support/message.h"
#include "zt/program/split_backward.h"

namespace zt::test {
namespace {

// embed, blocks.0 and head, of which the second exchanges tensors.
ModelInfo model_with_exchange() {
  ModelInfo model = chain(1);
  model.positions[1].exchanges = true;
  return model;
}

RankProgram paired(RankProgram program) {
  return make_micro_batch_pairs()->apply(std::move(program), model_with_exchange(), {});
}

std::string text_of(const RankProgram& program) {
  std::string text;
  for (const Action& action : program.actions) text += action_text(action) + "; ";
  return text;
}

RankProgram training(int micro_batches) {
  return base_program(model_with_exchange(), Mode::train, micro_batches);
}

TEST(MicroBatchPairs, TurnsEndWhereTensorsAreUnderWay) {
  EXPECT_EQ(text_of(paired(training(2))),
            "COUNT; F 0 0; F 1 0; F 0 1; F 1 1; F 2 0; B 2 0; B 1 0; F 2 1; B 2 1; B 1 1; B 0 0; B 0 1; NORM; STEP 0; STEP 1; "
            "STEP 2; ");
  EXPECT_TRUE(verify_all(model_with_exchange(), dp(1), {paired(training(2))}).empty());
}

TEST(MicroBatchPairs, TheLastOfAnOddNumberIsAlone) {
  EXPECT_EQ(text_of(paired(base_program(model_with_exchange(), Mode::eval, 3))),
            "COUNT; F 0 0 keep=none; F 1 0 keep=none; F 0 1 keep=none; F 1 1 keep=none; F 2 0 keep=none; F 2 1 keep=none; "
            "F 0 2 keep=none; F 1 2 keep=none; F 2 2 keep=none; NORM; ");
}

TEST(MicroBatchPairs, WeightGradientsEndNoTurn) {
  const RankProgram split = make_split_backward()->apply(training(2), model_with_exchange(), {});
  EXPECT_NE(text_of(paired(split)).find("I 1 0; F 2 1; I 2 1; W 2 1; I 1 1; W 1 0; I 0 0"), std::string::npos)
      << text_of(paired(split));
}

TEST(MicroBatchPairs, ModelsWithoutExchangesStayAsTheyAre) {
  const RankProgram program = base_program(chain(1), Mode::train, 2);
  EXPECT_EQ(make_micro_batch_pairs()->apply(program, chain(1), {}).text(), program.text());
}

TEST(MicroBatchPairs, RefusesMicroBatchesThatTakeTurnsAlready) {
  EXPECT_SAYS("'F 2 0' is where micro-batches do not run one after the other", paired(paired(training(2))));
}

}  // namespace
}  // namespace zt::test
