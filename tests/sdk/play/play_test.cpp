// The virtual executor: when actions run, which ranks are played, and what stands still.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "play/player.h"
#include "sdk/program/program_models.h"
#include "support/message.h"

namespace zt::test {
namespace {

// Kinds that move a value to the stage after or before, along axis pp.
KindId message_kind(const char* name, bool is_send) {
  Kind kind{name, Index::position, true, "moves a value", [is_send](const Action& action, const ModelInfo&) {
              const Resource value{resource::value, action.target, action.micro_batch};
              return is_send ? Resources{{value}, {}} : Resources{{}, {value}};
            }};
  kind.role = Role::transfer;
  kind.message = [is_send](const Action& action) {
    return Message{.channel = action.attr("channel", "forward"),
                   .axes = {"pp"},
                   .peer = static_cast<int>(action.number("peer", 0)),
                   .is_send = is_send,
                   .depth = static_cast<int>(action.number("depth", 4))};
  };
  return register_kind(std::move(kind));
}
Action send(int position, int micro_batch, int peer, int64_t depth = 4, const char* channel = "forward") {
  static const KindId id = message_kind("PLAY_SEND", true);
  return {.kind = id,
          .target = position,
          .micro_batch = micro_batch,
          .attrs = {{"peer", peer}, {"depth", depth}, {"channel", channel}}};
}
Action receive(int position, int micro_batch, int peer, int64_t depth = 4, const char* channel = "forward") {
  static const KindId id = message_kind("PLAY_RECV", false);
  return {.kind = id,
          .target = position,
          .micro_batch = micro_batch,
          .attrs = {{"peer", peer}, {"depth", depth}, {"channel", channel}}};
}
Action layer(KindId kind, int position, int micro_batch) {
  return {.kind = kind, .target = position, .micro_batch = micro_batch};
}

MeshShape stages(int count, int copies = 1) {
  return MeshShape({{"pp", count}, {"dp", copies}}, count * copies);
}

// A chain of positions without parameters, one per stage.
ModelInfo bare_chain(int positions) {
  ModelMaker maker;
  for (int p = 0; p < positions; ++p) maker.position(std::to_string(p), p > 0 ? std::vector{p - 1} : std::vector<int>{}, {});
  return maker.info;
}

using Passes = std::vector<std::pair<char, int>>;  // 'F', 'B', 'I' or 'W', and the micro-batch

// Returns the program of a stage: its passes in order, and the messages that they need.
RankProgram program_of(const Passes& passes, int stage, int count) {
  const Kinds& kinds = Kinds::get();
  RankProgram program;
  for (const auto& [letter, m] : passes) {
    const bool is_backward = letter == 'B' || letter == 'I';
    if (letter == 'F' && stage > 0) program.actions.push_back(receive(stage - 1, m, stage - 1));
    if (is_backward && stage + 1 < count) program.actions.push_back(receive(stage, m, stage + 1, 4, "backward"));
    program.actions.push_back(layer(letter == 'F'   ? kinds.forward
                                    : letter == 'B' ? kinds.backward
                                    : letter == 'I' ? kinds.input_grad
                                                    : kinds.weight_grad,
                                    stage, m));
    if (letter == 'F' && stage + 1 < count) program.actions.push_back(send(stage, m, stage + 1));
    if (is_backward && stage > 0) program.actions.push_back(send(stage - 1, m, stage - 1, 4, "backward"));
  }
  return program;
}

Passes gpipe(int, int, int m) {
  Passes passes;
  for (int i = 0; i < m; ++i) passes.emplace_back('F', i);
  for (int i = 0; i < m; ++i) passes.emplace_back('B', i);
  return passes;
}
Passes one_f_one_b(int stage, int p, int m) {
  Passes passes;
  const int warm_up = std::min(m, p - 1 - stage);
  for (int i = 0; i < warm_up; ++i) passes.emplace_back('F', i);
  for (int i = warm_up; i < m; ++i) {
    passes.emplace_back('F', i);
    passes.emplace_back('B', i - warm_up);
  }
  for (int i = m - warm_up; i < m; ++i) passes.emplace_back('B', i);
  return passes;
}
Passes zb_h1(int stage, int p, int m) {
  Passes passes;
  int forwards = std::min(m, p - 1 - stage), weights = 0;
  for (int i = 0; i < forwards; ++i) passes.emplace_back('F', i);
  for (int i = 0; i < m; ++i) {
    if (forwards < m) passes.emplace_back('F', forwards++);
    passes.emplace_back('I', i);
    if (i >= stage) passes.emplace_back('W', weights++);
  }
  while (weights < m) passes.emplace_back('W', weights++);
  return passes;
}

struct Line {
  double end = 0;
  std::vector<double> idle;  // by stage
};

Line simulate_passes(Passes (*schedule)(int, int, int), int p, int m, double input_grad = 1, double weight_grad = 1) {
  std::vector<RankProgram> programs;
  for (int stage = 0; stage < p; ++stage) programs.push_back(program_of(schedule(stage, p, m), stage, p));
  std::vector<const RankProgram*> pointers;
  for (const RankProgram& program : programs) pointers.push_back(&program);
  const ModelInfo model = bare_chain(p);
  const PlayedRanks played = played_ranks(model, stages(p), pointers);
  const Kinds& kinds = Kinds::get();
  const auto time = [&](int index, int step, size_t) -> ActionTime {
    const KindId kind = played.ranks[index].program->actions[step].kind;
    if (kind == kinds.forward) return {1, 0};
    if (kind == kinds.backward) return {input_grad + weight_grad, 0};
    if (kind == kinds.input_grad) return {input_grad, 0};
    return {kind == kinds.weight_grad ? weight_grad : 0, 0};
  };
  const PlayResult result = play(played, model, {.waiting = Waiting::when_needed, .time = time});
  EXPECT_TRUE(result.errors.empty());
  Line line;
  for (const PlayedLine& rank : result.lines) line.end = std::max(line.end, rank.end);
  for (const PlayedLine& rank : result.lines) {
    double busy = 0;
    for (const PlaySpan& span : rank.computes) busy += span.length();
    line.idle.push_back(line.end - busy);
  }
  return line;
}

// Times of known schedules, with no time for messages: (p - 1)(F + B) are idle, in ZB-H1 (p - 1)(F + I - W).
TEST(Play, TakesTheTimeOfKnownSchedules) {
  EXPECT_DOUBLE_EQ(simulate_passes(gpipe, 4, 12).end, 45);
  EXPECT_DOUBLE_EQ(simulate_passes(one_f_one_b, 4, 12).end, 45);
  EXPECT_DOUBLE_EQ(simulate_passes(zb_h1, 4, 12).end, 39);
  EXPECT_NEAR(simulate_passes(zb_h1, 4, 12, 1.2, 0.8).idle[0], 4.2, 1e-9);
  for (const int p : {1, 2, 3, 5, 8}) {
    for (const double idle : simulate_passes(one_f_one_b, p, 3 * p + 2).idle) EXPECT_NEAR(idle, 3 * (p - 1), 1e-9) << p;
  }
  EXPECT_DOUBLE_EQ(simulate_passes(one_f_one_b, 8, 24).idle[0], 21);
  EXPECT_DOUBLE_EQ(simulate_passes(zb_h1, 8, 24).idle[0], 7);
}

std::vector<Refusal> errors_of(const ModelInfo& model, const MeshShape& mesh, const std::vector<RankProgram>& programs) {
  std::vector<const RankProgram*> pointers;
  for (const RankProgram& program : programs) pointers.push_back(&program);
  return play(played_ranks(model, mesh, pointers), model, {}).errors;
}
RankProgram listed(std::vector<Action> actions) {
  RankProgram program;
  program.actions = std::move(actions);
  return program;
}

TEST(Play, NamesACircleOfRanks) {
  std::vector<RankProgram> programs;
  for (int rank = 0; rank < 3; ++rank) programs.push_back(listed({receive(0, 0, (rank + 2) % 3), send(0, 0, (rank + 1) % 3)}));
  const auto errors = errors_of(bare_chain(1), stages(3), programs);
  ASSERT_EQ(errors.size(), 3u);
  EXPECT_CONTAINS(errors[0].reason, "waits for ever for a message of rank 2 in channel 'forward'");
  EXPECT_CONTAINS(errors[0].reason, "the ranks 0, 2, 1 wait for each other in a circle");
}

TEST(Play, NamesAReceiveBeforeASendThatThePeerWaitsFor) {
  const std::vector<RankProgram> programs{listed({receive(1, 0, 1, 4, "backward"), send(0, 0, 1)}),
                                          listed({receive(0, 0, 0), send(1, 0, 0, 4, "backward")})};
  const auto errors = errors_of(bare_chain(2), stages(2), programs);
  ASSERT_EQ(errors.size(), 2u);
  EXPECT_EQ(errors[0].step, 0);
  EXPECT_CONTAINS(errors[0].reason, "channel 'backward': rank 1 waits in its action 0");
  EXPECT_CONTAINS(errors[0].reason, "ranks 0 and 1 wait for each other");
}

// The receiver waits for a message that the sender sends last, so all others must fit in their channel.
TEST(Play, ASendWaitsForAFreeSlot) {
  const auto programs = [](int64_t depth) {
    return std::vector<RankProgram>{
        listed({send(0, 0, 1, depth), send(0, 1, 1, depth), send(0, 2, 1, depth), send(1, 1, 1, 4, "other")}),
        listed({receive(1, 1, 0, 4, "other"), receive(0, 0, 0, depth), receive(0, 1, 0, depth), receive(0, 2, 0, depth)})};
  };
  EXPECT_TRUE(errors_of(bare_chain(2), stages(2), programs(3)).empty());
  const auto errors = errors_of(bare_chain(2), stages(2), programs(2));
  ASSERT_EQ(errors.size(), 2u);
  EXPECT_EQ(errors[0].step, 2);
  EXPECT_CONTAINS(errors[0].reason, "waits for ever for a free slot of 2 in channel 'forward' to rank 1");
}

TEST(Play, ComparesTheEndsOfAChannel) {
  auto errors =
      errors_of(bare_chain(2), stages(2), {listed({send(0, 0, 1), send(0, 1, 1)}), listed({receive(0, 1, 0), receive(0, 0, 0)})});
  ASSERT_EQ(errors.size(), 1u);
  EXPECT_EQ(errors[0].rank, 1);
  EXPECT_CONTAINS(errors[0].reason, "the next message in channel 'forward' is that of rank 0, action 0");
  errors = errors_of(bare_chain(2), stages(2), {listed({send(0, 0, 1, 8)}), listed({receive(0, 0, 0, 2)})});
  ASSERT_EQ(errors.size(), 1u);
  EXPECT_CONTAINS(errors[0].reason, "it gives channel 'forward' 2 buffers, and rank 0 takes it for 8 deep");
  errors = errors_of(bare_chain(2), stages(2), {listed({}), listed({receive(0, 0, 0)})});
  ASSERT_EQ(errors.size(), 1u);
  EXPECT_CONTAINS(errors[0].reason, "rank 0 ends without sending one");
  errors = errors_of(bare_chain(2), stages(2), {listed({send(0, 0, 0)}), listed({send(0, 0, 0, 0)})});
  ASSERT_EQ(errors.size(), 2u);
  EXPECT_CONTAINS(errors[0].reason, "its peer 0 is not another of the 2 ranks of axis 'pp'");
  EXPECT_CONTAINS(errors[1].reason, "a channel of depth 0 holds no message");
}

TEST(Play, PlaysRanksThatBehaveAlikeOnce) {
  constexpr int p = 8, copies = 512;
  std::vector<RankProgram> programs;
  for (int stage = 0; stage < p; ++stage) {
    programs.push_back(program_of(one_f_one_b(stage, p, 16), stage, p));
    programs.back().actions.push_back(parse_action("COUNT axes=[\"pp\",\"dp\"]"));
    programs.back().actions.push_back(parse_action("NORM axes=[\"dp\"]"));
  }
  std::vector<const RankProgram*> pointers;
  for (int rank = 0; rank < p * copies; ++rank) pointers.push_back(&programs[rank / copies]);
  const PlayedRanks played = played_ranks(bare_chain(p), stages(p, copies), pointers);
  ASSERT_EQ(played.ranks.size(), 8u);
  EXPECT_EQ(played.ranks[3].count, 512);
  EXPECT_EQ(played.played_as[5 * copies + 17], 5);
  EXPECT_EQ(played.groups.size(), 9u) << "that of all ranks, and one of each stage";
  EXPECT_TRUE(play(played, bare_chain(p), {}).errors.empty());

  // One odd rank makes its group differ from the other groups, whose ranks stay alike.
  RankProgram odd = programs[2];
  odd.actions.pop_back();
  pointers[2 * copies + 5] = &odd;
  const PlayedRanks with_odd = played_ranks(bare_chain(p), stages(p, copies), pointers);
  EXPECT_EQ(with_odd.ranks.size(), 16u) << "the odd rank's pipeline is played apart";
  EXPECT_FALSE(play(with_odd, bare_chain(p), {}).errors.empty());
}

}  // namespace
}  // namespace zt::test
