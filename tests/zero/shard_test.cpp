// The programs of zero.shard.
#include "shard.h"

#include <gtest/gtest.h>

#include "sdk/program/program_models.h"
#include "sdk/verify/verify_support.h"
#include "zero/shard_support.h"
#include "zt/base/error.h"
#include "zt/program/recompute.h"

namespace zt::test {
namespace {

TEST(Shard, Stage0SumsEachGradientOnce) {
  const RankProgram program = sharded(*shard(0), chain(1), 2);
  EXPECT_EQ(lines_of(program), (Lines{"COUNT", "F 0 0",         "F 1 0", "F 2 0",  "B 2 0",         "B 1 0", "B 0 0",
                                      "F 0 1", "F 1 1",         "F 2 1", "B 2 1",  "REDUCE_GRAD 2", "B 1 1", "REDUCE_GRAD 1",
                                      "B 0 1", "REDUCE_GRAD 0", "NORM",  "STEP 0", "STEP 1",        "STEP 2"}));
  EXPECT_EQ(program.units, std::vector<UnitPlan>(3, plan_of_stage(0)));
  for (const Action& action : program.actions) {
    const Kinds& kinds = Kinds::get();
    const bool communicates = action.kind == kinds.count || action.kind == kinds.norm || action.kind == kinds.reduce_grad;
    EXPECT_EQ(action.axes(), communicates ? Lines{"dp"} : Lines{}) << action_text(action);
  }
}

TEST(Shard, FollowsTheAxisLinkWhereOptionsSayNothing) {
  const auto of_link = [](AxisLink link) {
    const auto axis = axis_of("dp", 2);
    axis->link = std::move(link);
    return sharded(*zero::make_shard({.stage = 3, .axis = axis}), chain(1), 1);
  };
  const auto waits = [](const RankProgram& program) {
    return std::ranges::count_if(program.actions, [](const Action& action) { return action.flag("wait"); });
  };
  const RankProgram near = of_link({"shm", true}), apart = of_link({"mpi", false}), overlapping = of_link({"nccl", false, true});
  EXPECT_TRUE(near.units[0].params == Residence::node_shared);
  EXPECT_TRUE(apart.units[0].params == Residence::sharded);
  EXPECT_GT(waits(near), 0);
  EXPECT_GT(waits(apart), 0);
  EXPECT_EQ(waits(overlapping), 0);
}

TEST(Shard, Stage1GathersAfterEachStep) {
  const RankProgram program = sharded(*shard(1), chain(0), 1);
  EXPECT_EQ(lines_of(program), (Lines{"COUNT", "F 0 0", "F 1 0", "B 1 0", "REDUCE_GRAD 1", "B 0 0", "REDUCE_GRAD 0", "NORM",
                                      "STEP 0", "UNSHARD 0", "STEP 1", "UNSHARD 1"}));
  EXPECT_EQ(program.units, (std::vector<UnitPlan>(2, plan_of_stage(1))));
}

TEST(Shard, MergesSmallUnits) {
  // Units have 400 bytes: two fill a bucket of 800, and three do not fit.
  EXPECT_EQ(lines_of(sharded(*shard(1, 800), chain(1), 1)),
            (Lines{"COUNT", "F 0 0", "F 1 0", "F 2 0", "B 2 0", "B 1 0", "REDUCE_GRAD 2 units=[1]", "B 0 0", "REDUCE_GRAD 0",
                   "NORM", "STEP 0", "STEP 1", "UNSHARD 0 units=[1]", "STEP 2", "UNSHARD 2"}));
  // With 799 bytes no second unit fits, so each unit has its own bucket.
  EXPECT_EQ(lines_of(sharded(*shard(1, 799), chain(1), 1)), lines_of(sharded(*shard(1, 0), chain(1), 1)));
  const auto one = lines_of(sharded(*shard(1, 8 << 20), chain(1), 1));
  EXPECT_EQ(one[7], "REDUCE_GRAD 2 units=[1,0]");
  EXPECT_EQ(one.back(), "UNSHARD 0 units=[1,2]");
}

TEST(Shard, ReducesEachMicroBatchInParts) {
  const auto lines = lines_of(sharded(*shard(0, 8 << 20, "micro_batch"), chain(0), 3));
  EXPECT_EQ(lines, (Lines{"COUNT", "F 0 0", "F 1 0", "B 1 0", "B 0 0", "REDUCE_GRAD 1 sum=first units=[0]", "F 0 1", "F 1 1",
                          "B 1 1", "B 0 1", "REDUCE_GRAD 1 sum=middle units=[0]", "F 0 2", "F 1 2", "B 1 2", "B 0 2",
                          "REDUCE_GRAD 1 sum=last units=[0]", "NORM", "STEP 0", "STEP 1"}));
  const auto one = lines_of(sharded(*shard(0, 0, "micro_batch"), chain(0), 1));
  EXPECT_EQ(one, lines_of(sharded(*shard(0, 0, "step"), chain(0), 1))) << "one micro-batch is the whole step";
}

TEST(Shard, WaitsForAllUsesOfTiedParameters) {
  const auto lines = lines_of(sharded(*shard(0), tied_chain(1), 1));
  EXPECT_EQ(Lines(lines.begin() + 4, lines.begin() + 9), (Lines{"B 2 0", "B 1 0", "REDUCE_GRAD 1", "B 0 0", "REDUCE_GRAD 0"}));
}

TEST(Shard, LeavesFrozenUnitsAlone) {
  const RankProgram program = sharded(*shard(1), mixed_model(), 1);
  const auto lines = lines_of(program);
  EXPECT_EQ(Lines(lines.begin() + 7, lines.end()),
            (Lines{"B 5 0", "REDUCE_GRAD 3", "B 4 0", "B 3 0", "B 2 0", "B 1 0", "REDUCE_GRAD 1", "B 0 0", "REDUCE_GRAD 0",
                   "NORM", "STEP 0", "UNSHARD 0", "STEP 1", "UNSHARD 1", "STEP 3", "UNSHARD 3"}));
  EXPECT_EQ(program.units[2], UnitPlan{});
}

TEST(Shard, ChangesOtherProgramsOnlyWhereTheyCommunicate) {
  const RankProgram eval = sharded(*shard(1), chain(0), 1, Mode::eval);
  EXPECT_EQ(lines_of(eval), (Lines{"COUNT", "F 0 0 keep=none", "F 1 0 keep=none", "NORM"}));
  EXPECT_EQ(eval.actions.front().axes(), Lines{"dp"});
  EXPECT_EQ(eval.actions.back().axes(), Lines{"dp"});
  EXPECT_EQ(eval.units, (std::vector<UnitPlan>(2, plan_of_stage(1)))) << "all programs hold the same buffers";
  const RankProgram generate = sharded(*shard(1), chain(0), 1, Mode::generate);
  EXPECT_EQ(lines_of(generate), lines_of(base_program(chain(0), Mode::generate, 1)));
}

TEST(Shard, IsAPassOfThePhaseResidency) {
  const auto pass = shard(1);
  EXPECT_EQ(pass->name(), "zero.shard");
  EXPECT_EQ(pass->phase(), Phase::residency);
  EXPECT_EQ(pass->mesh(), nullptr);
  EXPECT_EQ(pass->handlers().size(), 4u);
}

TEST(Shard, MakesProgramsThatTheVerifierAccepts) {
  for (const auto& model : {chain(0), chain(3), tied_chain(2), mixed_model()}) {
    for (const int stage : {0, 1, 2, 3}) {
      for (const int64_t bytes : {0, 500, 8 << 20}) {
        for (const std::string every : {"step", "micro_batch"}) {
          for (int ranks = 1; ranks <= 4; ++ranks) {
            for (const Mode mode : {Mode::train, Mode::eval, Mode::generate}) {
              const int micro_batches = ranks;
              std::vector<RankProgram> programs;
              for (int rank = 0; rank < ranks; ++rank) {
                RankProgram program = base_program(model, mode, micro_batches);
                if (ranks > 1) program = make_recompute(ranks - 1)->apply(program, model, coord_of(rank, ranks));
                programs.push_back(shard(stage, bytes, every, ranks)->apply(program, model, coord_of(rank, ranks)));
              }
              EXPECT_EQ(text_of(verify_all(model, dp(ranks), programs)), "") << programs[0].text();
            }
          }
        }
      }
    }
  }
}

template <class Call>
void expect_misuse(Call call, const std::string& reason) {
  try {
    call();
    FAIL() << "accepted";
  } catch (const Misuse& error) {
    EXPECT_NE(std::string(error.what()).find(reason), std::string::npos) << error.what();
  }
}

TEST(Shard, LeavesShardedParametersAlone) {
  ModelMaker maker;
  const int embed = maker.position("embed", {}, {maker.unit("embed", 10)});
  maker.position("experts", {embed}, {maker.unit("experts", 10, true, {{"dp", Placement::sharded, 0, 2}})});
  const RankProgram program = sharded(*shard(1), maker.info, 1);
  EXPECT_EQ(program.units[1], UnitPlan{});
  const auto lines = lines_of(program);
  EXPECT_EQ(std::count(lines.begin(), lines.end(), "REDUCE_GRAD 1"), 0);
  EXPECT_EQ(text_of(verify_all(maker.info, dp(2), {program, program})), "");
}

TEST(Shard, RefusesUnitsThatAreNotOfOnePlacement) {
  ModelMaker maker;
  const int unit = maker.unit("layer", 10);
  maker.param(unit, "layer.router", 3, true, {{"dp", Placement::replicated_same_data}});
  maker.position("layer", {}, {unit});
  expect_misuse([&] { sharded(*shard(0), maker.info, 1); },
                "the parameters 'layer.weight' and 'layer.router' of unit 'layer' are placed differently on axis 'dp'");
}

TEST(Shard, RefusesAnAxisThatSeesNoOtherData) {
  const auto pass = zero::make_shard({.axis = axis_of("tp", 2), .bucket_bytes = 0, .reduce_every = "step"});
  expect_misuse([&] { pass->apply(base_program(chain(1), Mode::train, 1), chain(1), {}); },
                "along axis 'tp' no parameter sees other data");
}

// Experts see other data along dp only, and dense parameters along dp and ep.
TEST(Shard, CutsEachUnitAlongTheAxesWhereItSeesOtherData) {
  ModelMaker maker;
  const int dense = maker.position("dense", {}, {maker.unit("dense", 100)});
  maker.position("experts", {dense}, {maker.unit("experts", 100, true, {{"ep", Placement::replicated_same_data}})});
  const auto both = std::make_shared<Axis>();
  both->name = "ep+dp";
  both->names = {"ep", "dp"};
  both->size = 4;
  const Coord coord{MeshShape({{"dp", 2}, {"ep", 2}}, 4), 0};
  const auto plans = [&](int stage) {
    const auto pass = zero::make_shard({.stage = stage, .axis = both, .bucket_bytes = 1 << 20, .reduce_every = "step"});
    return pass->apply(base_program(maker.info, Mode::train, 1), maker.info, coord);
  };
  const RankProgram whole = plans(0), sharded = plans(1);
  EXPECT_EQ(whole.units[0].sum_axes, (Lines{"dp", "ep"}));
  EXPECT_EQ(whole.units[1].sum_axes, Lines{"dp"});
  EXPECT_EQ(sharded.units[0].shard_axes, (Lines{"dp", "ep"})) << "in the order of the mesh";
  EXPECT_EQ(sharded.units[1].shard_axes, Lines{"dp"});
  Lines communication;
  for (const Action& action : sharded.actions) {
    if (!action.axes().empty()) communication.push_back(action_text(action));
  }
  EXPECT_EQ(communication, (Lines{R"(COUNT axes=["dp","ep"] samples=["ep","dp"])", R"(REDUCE_GRAD 1 axes=["dp"] wait=true)",
                                  R"(REDUCE_GRAD 0 axes=["dp","ep"] wait=true)", R"(NORM axes=["dp","ep"])",
                                  R"(UNSHARD 0 axes=["dp","ep"] wait=true)", R"(UNSHARD 1 axes=["dp"] wait=true)"}));
  EXPECT_EQ(text_of(verify(maker.info, coord.shape, std::vector<const RankProgram*>(4, &sharded))), "");
}

// The groups along `replicate` hold the same shards, also where layers cut tokens over that axis.
TEST(Shard, ReplicatesShardsAlongAnInnerAxis) {
  ModelInfo info = chain(2);
  info.inner_axes = {"cp"};
  const Coord coord{MeshShape({{"dp", 2}, {"cp", 2}}, 4), 0};
  const auto pass = zero::make_shard(
      {.stage = 3, .axis = axis_of("dp", 2), .replicate = axis_of("cp", 2), .bucket_bytes = 1 << 20, .reduce_every = "step"});
  const RankProgram program = pass->apply(base_program(info, Mode::train, 1), info, coord);
  for (const UnitPlan& unit : program.units) {
    EXPECT_EQ(unit.shard_axes, Lines{"dp"});
    EXPECT_EQ(unit.sum_axes, (Lines{"dp", "cp"}));
  }
  EXPECT_TRUE(std::ranges::any_of(program.actions, [](const Action& a) { return a.kind == Kinds::get().replicate_grad; }));
  EXPECT_EQ(text_of(verify(info, coord.shape, std::vector<const RankProgram*>(4, &program))), "");
}

TEST(Shard, RefusesToSumTwice) {
  for (const int stage : {0, 1}) {
    const auto pass = shard(stage);
    const RankProgram once = sharded(*pass, chain(1), 1);
    expect_misuse([&] { pass->apply(once, chain(1), coord_of(0, 2)); }, "apply zero.shard once");
  }
}

TEST(Shard, ChecksItsOptions) {
  const Value axis = Object::of(axis_of("dp", 2));
  const zero::ShardOptions options = zero::parse_shard_options(Value::Table{{"axis", axis}, {"stage", 1}});
  EXPECT_EQ(options.stage, 1);
  EXPECT_EQ(options.bucket_bytes, 8 << 20);
  EXPECT_EQ(options.reduction(), "step");
  const auto refuse = [&](Value::Table table, const std::string& reason) {
    expect_misuse([&] { zero::parse_shard_options(table); }, reason);
  };
  refuse({{"stage", 1}}, "option 'axis' is missing");
  refuse({{"axis", axis}, {"stages", 1}}, "'stage'");
  refuse({{"axis", axis}, {"stage", 4}}, "zero.shard.stage must lie between 0 and 3");
  refuse({{"axis", axis}, {"bucket_bytes", -1}}, "zero.shard.bucket_bytes must be at least 0");
  refuse({{"axis", axis}, {"reduce_every", "batch"}}, "zero.shard.reduce_every must be one of 'step', 'micro_batch'");
  refuse({{"axis", "dp"}}, "zero.shard.axis");
}

}  // namespace
}  // namespace zt::test
