// The programs of stages 2 and 3: where sharded parameters are gathered and freed.
#include "residency/residency.h"

#include <gtest/gtest.h>

#include "sdk/program/program_models.h"
#include "sdk/verify/verify_support.h"
#include "support/message.h"
#include "zero/shard_support.h"
#include "zt/base/error.h"
#include "zt/program/recompute.h"

namespace zt::test {
namespace {

std::shared_ptr<Pass> stage_3(int prefetch, int64_t persist_below = 0, int64_t max_reuse_distance = 0) {
  return zero::make_shard({.stage = 3,
                           .axis = axis_of("dp", 2),
                           .bucket_bytes = 0,
                           .prefetch = prefetch,
                           .persist_below = persist_below,
                           .max_reuse_distance = max_reuse_distance});
}

void expect_accepted(const RankProgram& program, const ModelInfo& model) {
  const std::vector<const RankProgram*> ranks(2, &program);
  for (const Refusal& refusal : verify(model, MeshShape({{"dp", 2}}, 2), ranks)) ADD_FAILURE() << refusal.text();
}

TEST(Residency, Stage2ReducesEachMicroBatch) {
  const auto pass = zero::make_shard({.stage = 2, .axis = axis_of("dp", 2), .bucket_bytes = 0});
  const RankProgram program = sharded(*pass, chain(0), 2);
  EXPECT_EQ(lines_of(program), (Lines{"COUNT", "F 0 0", "F 1 0", "B 1 0", "REDUCE_GRAD 1 sum=first", "B 0 0",
                                      "REDUCE_GRAD 0 sum=first", "F 0 1", "F 1 1", "B 1 1", "REDUCE_GRAD 1 sum=last", "B 0 1",
                                      "REDUCE_GRAD 0 sum=last", "NORM", "STEP 0", "UNSHARD 0", "STEP 1", "UNSHARD 1"}));
  EXPECT_EQ(program.units, (std::vector<UnitPlan>(2, plan_of_stage(2))));
  expect_accepted(program, chain(0));
}

TEST(Residency, Stage3GathersAroundEachUse) {
  const RankProgram program = sharded(*stage_3(0), chain(1), 1);
  EXPECT_EQ(lines_of(program),
            (Lines{"COUNT",     "UNSHARD 0", "F 0 0",     "RESHARD 0",     "UNSHARD 1", "F 1 0",  "RESHARD 1", "UNSHARD 2",
                   "F 2 0",     "B 2 0",     "RESHARD 2", "REDUCE_GRAD 2", "UNSHARD 1", "B 1 0",  "RESHARD 1", "REDUCE_GRAD 1",
                   "UNSHARD 0", "B 0 0",     "RESHARD 0", "REDUCE_GRAD 0", "NORM",      "STEP 0", "STEP 1",    "STEP 2"}));
  EXPECT_EQ(program.units, (std::vector<UnitPlan>(3, plan_of_stage(3))));
  expect_accepted(program, chain(1));
}

TEST(Residency, PrefetchGathersAhead) {
  const RankProgram program = sharded(*stage_3(1), chain(1), 1);
  EXPECT_EQ(lines_of(program), (Lines{"COUNT",         "UNSHARD 0",     "UNSHARD 1", "F 0 0",     "RESHARD 0",     "UNSHARD 2",
                                      "F 1 0",         "RESHARD 1",     "UNSHARD 1", "F 2 0",     "B 2 0",         "RESHARD 2",
                                      "REDUCE_GRAD 2", "UNSHARD 0",     "B 1 0",     "RESHARD 1", "REDUCE_GRAD 1", "B 0 0",
                                      "RESHARD 0",     "REDUCE_GRAD 0", "NORM",      "STEP 0",    "STEP 1",        "STEP 2"}));
  for (const int prefetch : {1, 2, 3, 100}) {
    for (const int micro_batches : {1, 3}) expect_accepted(sharded(*stage_3(prefetch), chain(3), micro_batches), chain(3));
  }
}

TEST(Residency, UnitsMayStayWhole) {
  // Units have 100 elements. A unit stays whole over one other unit between two uses, and always if it is small.
  const RankProgram near = sharded(*stage_3(0, 0, 100), chain(1), 1);
  const auto lines = lines_of(near);
  EXPECT_EQ(std::count(lines.begin(), lines.end(), "UNSHARD 1"), 1);
  EXPECT_EQ(std::count(lines.begin(), lines.end(), "UNSHARD 0"), 2);
  expect_accepted(near, chain(1));
  const RankProgram small = sharded(*stage_3(0, 1000), chain(1), 1);
  EXPECT_EQ(small.units, (std::vector<UnitPlan>(3, plan_of_stage(2))));
  EXPECT_EQ(lines_of(small).back(), "UNSHARD 2") << "as at stage 2";
  expect_accepted(small, chain(1));
}

TEST(Residency, UnitsStayWholeWhileThereIsRoom) {
  // Units have 100 elements: of four, three may be whole.
  const auto keeping = [](int64_t max_live, int prefetch) {
    return zero::make_shard({.stage = 3,
                             .axis = axis_of("dp", 2),
                             .bucket_bytes = 0,
                             .prefetch = prefetch,
                             .max_live = max_live,
                             .node_shared = false,
                             .keep = "max_live"});
  };
  const auto gathers = [](const RankProgram& program) {
    int count = 0;
    for (const Action& action : program.actions) count += action.kind == Kinds::get().unshard ? 1 : 0;
    return count;
  };
  // Forward 0 1 2 3, backward 3 2 1 0: at the forward of 3, unit 0 leaves, whose next use is the last.
  const RankProgram three = sharded(*keeping(300, 0), chain(2), 1);
  EXPECT_EQ(gathers(three), 5);
  EXPECT_EQ(gathers(sharded(*keeping(400, 0), chain(2), 1)), 4);
  EXPECT_EQ(gathers(sharded(*keeping(100, 0), chain(2), 1)), 7);
  for (const int64_t max_live : {100, 200, 300, 399, 400}) {
    for (const int prefetch : {0, 1, 5}) expect_accepted(sharded(*keeping(max_live, prefetch), chain(2), 3), chain(2));
  }
  EXPECT_SAYS("needs 100 elements of sharded parameters whole at once, but max_live is 99: raise it",
              sharded(*keeping(99, 0), chain(2), 1));
}

TEST(Residency, AllModesAndTiedParametersAndRecompute) {
  for (const Mode mode : {Mode::train, Mode::eval, Mode::generate}) {
    expect_accepted(sharded(*stage_3(1), chain(2), 1, mode), chain(2));
    expect_accepted(sharded(*stage_3(2), tied_chain(2), 1, mode), tied_chain(2));
  }
  const ModelInfo model = chain(2);
  const RankProgram recomputed = make_recompute(1)->apply(base_program(model, Mode::train, 2), model, coord_of(0, 2));
  expect_accepted(stage_3(1)->apply(recomputed, model, coord_of(0, 2)), model);
}

TEST(Residency, TheVerifierRefusesWhatIsMissing) {
  const auto reason = [](const char* line) {
    const ModelInfo model = chain(0);
    RankProgram program = sharded(*stage_3(0), model, 1);
    const auto lines = lines_of(program);
    program.actions.erase(program.actions.begin() + (std::find(lines.begin(), lines.end(), line) - lines.begin()));
    const std::vector<const RankProgram*> ranks(2, &program);
    const auto refusals = verify(model, MeshShape({{"dp", 2}}, 2), ranks);
    return refusals.empty() ? "" : refusals[0].text();
  };
  EXPECT_CONTAINS(reason("UNSHARD 0"), "which are sharded: put UNSHARD 0 before");
  EXPECT_CONTAINS(reason("RESHARD 0"), "are present and current already");
  EXPECT_CONTAINS(reason("RESHARD 1"), "gathered at the end, in a buffer that other units use: add RESHARD 1");
}

TEST(Residency, OptionsOfStage3AreRefusedElsewhere) {
  const auto axis = Object::of<Axis>(axis_of("dp", 2));
  const auto parse = [&](int stage, const char* key, int value) {
    return zero::parse_shard_options(Value::Table{{"axis", axis}, {"stage", stage}, {key, value}});
  };
  EXPECT_SAYS("zero.shard.prefetch has an effect only at stage 3", parse(2, "prefetch", 2));
  EXPECT_SAYS("stage must lie between 0 and 3", parse(4, "prefetch", 1));
  EXPECT_EQ(parse(3, "prefetch", 2).prefetch, 2);
  EXPECT_EQ(parse(3, "prefetch", 2).reduction(), "micro_batch");
  EXPECT_EQ(parse(1, "bucket_bytes", 0).reduction(), "step");
  const auto keep = [&](const char* name, int max_live) {
    return zero::parse_shard_options(Value::Table{{"axis", axis}, {"stage", 3}, {"keep", name}, {"max_live", max_live}}).keep;
  };
  EXPECT_EQ(keep("max_live", 10), "max_live");
  EXPECT_SAYS("give max_live", keep("max_live", 0));
  EXPECT_SAYS("zero.shard.keep", keep("room", 10));
}

}  // namespace
}  // namespace zt::test
