// Finds where units are ready, also with kinds that zero does not know and with schedules that interleave micro-batches.
#include "readiness.h"

#include <gtest/gtest.h>

#include "sdk/program/program_models.h"
#include "sdk/verify/verify_support.h"
#include "zero/shard_support.h"
#include "zt/base/error.h"

namespace zt::test {
namespace {

KindId unit_kind(const char* name, std::vector<ResourceId> reads, std::vector<ResourceId> writes) {
  return register_kind({name, Index::unit, false, "", [=](const Action& action, const ModelInfo&) {
                          Resources resources;
                          const auto place = [&](ResourceId type) {
                            return Resource{type, type_of(type).index == Index::unit ? action.target : 0};
                          };
                          for (const auto type : reads) resources.reads.push_back(place(type));
                          for (const auto type : writes) resources.writes.push_back(place(type));
                          return resources;
                        }});
}

RankProgram program_of(const Lines& lines, int micro_batches, size_t units) {
  RankProgram program{.micro_batches = micro_batches, .units = std::vector<UnitPlan>(units), .actions = {}};
  for (const std::string& line : lines) program.actions.push_back(parse_action(line));
  return program;
}

// All forwards, then the backwards of both micro-batches position by position: the micro-batches interleave.
const Lines kInterleaved{"COUNT", "F 0 0", "F 1 0", "F 0 1", "F 1 1",  "B 1 0",
                         "B 1 1", "B 0 0", "B 0 1", "NORM",  "STEP 0", "STEP 1"};

TEST(Readiness, GradientsAreCompleteAfterTheLastBackward) {
  const auto ready = zero::last_writes(program_of(kInterleaved, 2, 2).actions, chain(0), resource::grad, {true, true});
  ASSERT_EQ(ready.size(), 2u);
  EXPECT_EQ(ready[0].unit, 1);
  EXPECT_EQ(ready[0].after, 6);
  EXPECT_EQ(ready[1].unit, 0);
  EXPECT_EQ(ready[1].after, 8);
}

TEST(Readiness, MicroBatchesOfOneUnitMayNotInterleave) {
  const RankProgram apart = program_of(kInterleaved, 2, 2);
  EXPECT_EQ(zero::gradients_by_micro_batch(apart.actions, chain(0), {true, true}).size(), 4u)
      << "the micro-batches of each unit do not interleave";
  // A unit of two parameters, each of which one position uses: its gradient comes from both positions.
  ModelMaker maker;
  const int unit = maker.unit("grouped", 10);
  maker.param(unit, "grouped.bias", 10, true);
  const int embed = maker.position("embed", {}, {unit});
  maker.position("head", {embed}, {unit});
  maker.info.params[0].positions = {0};
  maker.info.params[1].positions = {1};
  const RankProgram tied = program_of(Lines(kInterleaved.begin(), kInterleaved.end() - 1), 2, 1);
  try {
    zero::gradients_by_micro_batch(tied.actions, maker.info, {true});
    FAIL() << "accepted";
  } catch (const Misuse& error) {
    EXPECT_NE(std::string(error.what())
                  .find("gradient of unit 'grouped' to be complete before the next begins, and action 7 (B 0 0) comes later"),
              std::string::npos)
        << error.what();
  }
  const RankProgram whole = shard(1)->apply(tied, maker.info, coord_of(0, 2));
  EXPECT_EQ(text_of(verify_all(maker.info, dp(2), {whole, whole})), "")
      << "interleaving is allowed if the gradient is reduced once";
}

TEST(Readiness, TiedUnitsAreReducedOncePerStep) {
  const RankProgram program = base_program(tied_chain(0), Mode::train, 2);
  const auto ready = zero::gradients_by_micro_batch(program.actions, tied_chain(0), {true});
  ASSERT_EQ(ready.size(), 1U);
  EXPECT_EQ(action_text(program.actions[ready[0].after]), "B 0 1");
  EXPECT_EQ(ready[0].part, GradientPart::whole);
}

TEST(Readiness, UnknownKindsAreWaitedFor) {
  unit_kind("NOISE", {resource::grad}, {resource::grad});
  RankProgram program = base_program(chain(0), Mode::train, 2);
  program.actions.insert(program.actions.begin() + 8, parse_action("NOISE 1"));  // after B 1 1, at index 7
  ASSERT_EQ(action_text(program.actions[7]), "B 1 1");
  for (const std::string every : {"step", "micro_batch"}) {
    const RankProgram reduced = shard(0, 0, every)->apply(program, chain(0), coord_of(0, 2));
    const auto lines = lines_of(reduced);
    const auto noise = std::find(lines.begin(), lines.end(), "NOISE 1");
    EXPECT_EQ((noise + 1)->substr(0, 13), "REDUCE_GRAD 1") << reduced.text();
    EXPECT_EQ(text_of(verify_all(chain(0), dp(2), {reduced, reduced})), "");
  }
}

TEST(Readiness, BucketsEndBeforeWhatTouchesTheirUnits) {
  unit_kind("LOOK", {resource::param}, {});
  unit_kind("CLIP_UNIT", {resource::grad}, {resource::scalars});
  RankProgram program = base_program(chain(1), Mode::train, 1);
  program.actions.insert(program.actions.end() - 1, parse_action("LOOK 1"));         // between STEP 1 and STEP 2
  program.actions.insert(program.actions.begin() + 6, parse_action("CLIP_UNIT 2"));  // between B 1 0 and B 0 0
  const RankProgram sharded = shard(1, 8 << 20)->apply(program, chain(1), coord_of(0, 2));
  const auto lines = lines_of(sharded);
  EXPECT_EQ(Lines(lines.begin() + 4, lines.end()),
            (Lines{"B 2 0", "B 1 0", "REDUCE_GRAD 2 units=[1]", "CLIP_UNIT 2", "B 0 0", "REDUCE_GRAD 0", "NORM", "STEP 0",
                   "STEP 1", "UNSHARD 0 units=[1]", "LOOK 1", "STEP 2", "UNSHARD 2"}));
  EXPECT_EQ(text_of(verify_all(chain(1), dp(2), {sharded, sharded})), "");
}

TEST(Readiness, UnshardComesAfterTheLastChangeOfTheMaster) {
  unit_kind("CLAMP", {resource::master}, {resource::master});
  RankProgram program = base_program(chain(0), Mode::train, 1);
  program.actions.push_back(parse_action("CLAMP 0"));
  const auto lines = lines_of(shard(1)->apply(program, chain(0), coord_of(0, 2)));
  EXPECT_EQ(Lines(lines.end() - 5, lines.end()), (Lines{"STEP 0", "STEP 1", "UNSHARD 1", "CLAMP 0", "UNSHARD 0"}));
}

}  // namespace
}  // namespace zt::test
