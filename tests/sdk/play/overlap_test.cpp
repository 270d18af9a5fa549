// The virtual executor: what runs at the same time, beside a rank and over its links.
#include <gtest/gtest.h>

#include "play/player.h"
#include "sdk/program/program_models.h"

namespace zt::test {
namespace {

// While a reduction is under way, actions that do not touch its gradient go on.
TEST(Overlap, OverlapsWhatDoesNotConflict) {
  const ModelInfo model = chain(1);
  RankProgram program = base_program(model, Mode::train, 1);
  program.actions = {parse_action("B 2 0"), parse_action("REDUCE_GRAD 2 axes=[\"dp\"]"), parse_action("B 1 0"),
                     parse_action("STEP 2")};
  const std::vector<const RankProgram*> pointers{&program, &program};
  const auto time = [&](int, int step, size_t) { return step == 1 ? ActionTime{0, 5} : ActionTime{2, 0}; };
  const auto end = [&](Waiting waiting) {
    return play(played_ranks(model, MeshShape({{"dp", 2}}, 2), pointers), model, {.waiting = waiting, .time = time}).lines[0].end;
  };
  EXPECT_DOUBLE_EQ(end(Waiting::at_once), 2 + 5 + 2 + 2);
  EXPECT_DOUBLE_EQ(end(Waiting::when_needed), 2 + 5 + 2) << "STEP waits, B does not";
}

// Two reductions of one rank over different axes share its link to other machines.
TEST(Overlap, TransfersThatShareALinkTakeLonger) {
  const ModelInfo model = chain(1);
  RankProgram program = base_program(model, Mode::train, 1);
  program.actions = {parse_action("REDUCE_GRAD 1 axes=[\"dp\"]"), parse_action("REDUCE_GRAD 2 axes=[\"ep\"]"),
                     parse_action("STEP 1"), parse_action("STEP 2")};
  const std::vector<const RankProgram*> pointers(4, &program);
  const PlayedRanks played = played_ranks(model, MeshShape({{"dp", 2}, {"ep", 2}}, 4), pointers);
  const auto end = [&](const LinkUse& use) {
    const auto time = [&](int, int step, size_t) { return step < 2 ? ActionTime{0, 3, use} : ActionTime{}; };
    return play(played, model, {.waiting = Waiting::when_needed, .time = time}).lines[0].end;
  };
  EXPECT_DOUBLE_EQ(end({}), 3);
  EXPECT_DOUBLE_EQ(end({0, 1}), 6);
}

// An action that moves the gradient of its unit beside the rank, on a queue.
Action moving(int unit, const char* queue) {
  static const KindId id = [] {
    Kind kind{"PLAY_MOVE", Index::unit, false, "moves a gradient", [](const Action& action, const ModelInfo&) {
                return Resources{{{resource::grad, action.target}}, {}};
              }};
    kind.role = Role::movement;
    kind.queue = [](const Action& action) { return action.attr("queue", ""); };
    return register_kind(std::move(kind));
  }();
  return {.kind = id, .target = unit, .attrs = {{"queue", queue}}};
}

// Works of a queue run one after the other, beside the rank. An action that touches what they move waits.
TEST(Overlap, MovesDataOnQueues) {
  const ModelInfo model = chain(2);
  const Action backward = parse_action("B 3 0"), sum = parse_action("REDUCE_GRAD 2");
  const auto time = [](double move) {
    return [move](int, int step, size_t) { return step < 2 ? ActionTime{0, move} : ActionTime{1, 0}; };
  };
  const auto end = [&](const char* queue, Waiting waiting) {
    RankProgram program = base_program(model, Mode::train, 1), other = program;
    program.actions = {moving(1, "file"), moving(2, queue), backward, sum};
    other.actions = {moving(2, "file"), moving(3, "file"), sum};
    const PlayedRanks played = played_ranks(model, MeshShape({{"dp", 2}}, 2), {&program, &other});
    const PlayResult result = play(played, model, {.waiting = waiting, .time = time(3)});
    EXPECT_TRUE(result.errors.empty());
    EXPECT_DOUBLE_EQ(result.lines[1].end, waiting == Waiting::at_once ? 7 : 4) << "a queue of its own";
    return result.lines[0].end;
  };
  EXPECT_DOUBLE_EQ(end("file", Waiting::when_needed), 7);
  EXPECT_DOUBLE_EQ(end("copy", Waiting::when_needed), 4);
  EXPECT_DOUBLE_EQ(end("file", Waiting::at_once), 8);
}

}  // namespace
}  // namespace zt::test
