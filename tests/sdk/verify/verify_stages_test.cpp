// Programs of ranks that run only some of the positions.
#include <gtest/gtest.h>

#include "sdk/program/program_models.h"
#include "sdk/verify/verify_support.h"
#include "support/message.h"

namespace zt::test {
namespace {

// Kinds that move a position's output and its gradient.
void register_moves() {
  const auto resource = [](ResourceId kind, const Action& action) { return Resource{kind, action.target, action.micro_batch}; };
  register_kind({"GIVE_VALUE", Index::position, true, "", [=](const Action& action, const ModelInfo&) {
                   return Resources{{}, {resource(resource::value, action)}};
                 }});
  register_kind({"GIVE_GRAD", Index::position, true, "", [=](const Action& action, const ModelInfo&) {
                   return Resources{{}, {resource(resource::value_grad, action)}};
                 }});
  register_kind({"TAKE_GRAD", Index::position, true, "", [=](const Action& action, const ModelInfo&) {
                   return Resources{{resource(resource::value_grad, action)}, {}, {resource(resource::value_grad, action)}};
                 }});
}

// The embedding and the head are tied. Rank 0 runs the embedding and the block, rank 1 the head.
const Lines kFirst{"COUNT axes=[\"pp\"] samples=[]",
                   "F 0 0",
                   "F 1 0",
                   "GIVE_GRAD 1 0",
                   "B 1 0",
                   "B 0 0",
                   "REDUCE_TIE 0 axes=[\"pp\"]",
                   "NORM axes=[\"pp\"]",
                   "STEP 0",
                   "STEP 1"};
const Lines kSecond{"COUNT axes=[\"pp\"] samples=[]", "GIVE_VALUE 1 0",     "F 2 0",  "B 2 0",
                    "REDUCE_TIE 0 axes=[\"pp\"]",     "NORM axes=[\"pp\"]", "STEP 0", "TAKE_GRAD 1 0"};

RankProgram of(Lines lines, std::vector<bool> held, const Edit& edit) {
  register_moves();
  edit(lines);
  RankProgram program;
  program.split_axes = {"pp"};
  for (const bool is_held : held) program.units.push_back({.held = is_held});
  for (const std::string& line : lines) program.actions.push_back(parse_action(line));
  return program;
}

const Edit kNothing = [](Lines&) {};

std::vector<Refusal> verify_stages(const Edit& first, const Edit& second, std::vector<bool> held = {true, false}) {
  const std::vector<RankProgram> programs{of(kFirst, {true, true}, first), of(kSecond, std::move(held), second)};
  return verify_all(tied_chain(1), MeshShape({{"pp", 2}}, 2), programs);
}

TEST(VerifyStages, AcceptsRanksThatTogetherRunAllPositions) {
  EXPECT_EQ(text_of(verify_stages(kNothing, kNothing)), "");
}

TEST(VerifyStages, NamesAPositionThatNoRankOrTwoRanksRun) {
  const Edit without_head = [](Lines& lines) { lines = {lines[0], lines[4], lines[5], lines[6]}; };
  EXPECT_CONTAINS(text_of(verify_stages(kNothing, without_head)), "position 2 ('head') is run by none of the ranks 0, 1");
  const Edit block_too = [](Lines& lines) {
    lines.insert(lines.begin() + 1, "GIVE_VALUE 0 0");
    lines[2] = "F 1 0";
    lines.insert(lines.begin() + 5, "B 1 0");
    lines.back() = "TAKE_GRAD 0 0";
    lines.push_back("STEP 1");
  };
  EXPECT_CONTAINS(text_of(verify_stages(kNothing, block_too, {true, true})), "position 1 ('blocks.0') is run by the ranks 0, 1");
}

TEST(VerifyStages, FollowsGradientsThatOtherRanksNeed) {
  EXPECT_CONTAINS(text_of(verify_stages(kNothing, erase(7))),
                  "it adds to the gradient of the outputs of position 1 ('blocks.0'), which another rank runs, and no SEND_GRAD");
  EXPECT_CONTAINS(text_of(verify_stages(kNothing, both(erase(7), insert(3, "TAKE_GRAD 1 0")))),
                  "it reads the gradient of the outputs of position 1 ('blocks.0'), to which nothing was added before");
}

TEST(VerifyStages, NamesUnitsThatAreNotHeld) {
  EXPECT_CONTAINS(text_of(verify_stages(kNothing, kNothing, {false, false})),
                  "it touches unit 0 ('embed'), which this rank does not hold");
  const Edit none = [](Lines& lines) { lines = {lines[0], lines[7]}; };
  RankProgram first = of(kFirst, {false, false}, none), second = of(kSecond, {false, false}, [](Lines&lines) {
                                                          lines = {lines[0], lines[5]};
                                                        });
  EXPECT_CONTAINS(text_of(verify_all(tied_chain(1), MeshShape({{"pp", 2}}, 2), {first, second})),
                  "unit 1 ('blocks.0') is held by none of the ranks 0, 1");
}

TEST(VerifyStages, NamesATiedParameterThatIsNotSummedOverItsUses) {
  EXPECT_CONTAINS(text_of(verify_stages(erase(6), erase(4))),
                  "rank 0, action 6 (NORM axes=[\"pp\"]): unit 0 ('embed') is tied over several ranks, and no REDUCE_TIE 0");
  EXPECT_CONTAINS(text_of(verify_stages(swap(5, 6), kNothing)), "it adds to a gradient after its REDUCE_TIE");
  EXPECT_CONTAINS(text_of(verify_stages(insert(6, kFirst[6]), insert(4, kSecond[4]))), "it repeats an earlier REDUCE_TIE");
}

TEST(VerifyStages, NamesCountsAndNormsThatLeaveRanksOut) {
  EXPECT_CONTAINS(text_of(verify_stages(replace(7, "NORM"), replace(5, "NORM"))),
                  "ranks along 'pp' hold different parts of the model, so this action must sum over them");
  RankProgram lost = of(kFirst, {true, true}, kNothing);
  lost.split_axes = {"qq"};
  EXPECT_CONTAINS(text_of(verify_all(tied_chain(1), MeshShape({{"pp", 2}}, 2), {lost, lost})),
                  "it is split over axis 'qq', which the mesh pp=2 does not have");
}

TEST(VerifyStages, NamesValuesThatWereNotReceived) {
  EXPECT_CONTAINS(text_of(verify_stages(kNothing, erase(1))),
                  "it reads the output of position 1 ('blocks.0'), which this rank neither runs nor has received");
  EXPECT_CONTAINS(text_of(verify_stages(erase(3), kNothing)),
                  "it needs the gradient of its outputs from position 2 ('head'), which another rank runs");
}

}  // namespace
}  // namespace zt::test
