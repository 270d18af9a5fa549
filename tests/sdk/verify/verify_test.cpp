// The verifier accepts correct programs and names the errors of others.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>

#include "sdk/program/program_models.h"
#include "verify_support.h"
#include "zt/base/error.h"
#include "zt/program/recompute.h"

namespace zt::test {
namespace {

TEST(Verify, AcceptsTheProgramWithoutEdits) {
  for (const int ranks : {1, 2, 3, 4}) {
    const std::vector<RankProgram> programs(ranks, from_lines(stage_1_lines()));
    EXPECT_EQ(text_of(verify_all(chain(1), dp(ranks), programs)), "");
  }
}

TEST(Verify, AcceptsBasePrograms) {
  for (const auto& model : {ModelInfo{}, chain(0), chain(3), tied_chain(2), mixed_model()}) {
    for (const Mode mode : {Mode::train, Mode::eval, Mode::generate}) {
      for (const int micro_batches : {1, 2, 4}) {
        const RankProgram program = base_program(model, mode, micro_batches);
        EXPECT_EQ(text_of(verify_all(model, dp(1), {program})), "");
        EXPECT_EQ(text_of(verify_all(model, dp(3), {program, program, program})), "")
            << "a program may reduce nothing, as in local SGD";
        for (const int every : {1, 2, 3}) {
          EXPECT_EQ(text_of(verify_all(model, dp(1), {make_recompute(every)->apply(program, model, {})})), "");
        }
      }
    }
  }
}

TEST(Verify, NamesRankActionAndReason) {
  Lines lines = stage_1_lines();
  lines.erase(lines.begin() + 7);
  const auto refusals = verify_all(chain(1), dp(3), std::vector<RankProgram>(3, from_lines(lines)));
  ASSERT_EQ(refusals.size(), 1u) << text_of(refusals);
  EXPECT_EQ(
      refusals[0].text(),
      "rank 0, action 9 (NORM axes=[\"dp\"]): the gradient of unit 1 ('blocks.0') was not summed over 'dp', along which "
      "ranks see other data: put REDUCE_GRAD 1 before, or give zero.shard all axes with other data, axis = mesh.dp (2 other "
      "ranks have the same program)");
}

TEST(Verify, SortsAndLimits) {
  Lines lines = stage_1_lines();
  for (const int at : {13, 11, 3, 2, 1}) lines.insert(lines.begin() + at, lines[at]);
  const auto all = verify_all(chain(1), dp(1), {from_lines(lines)});
  EXPECT_EQ(all.size(), 5u) << text_of(all);
  EXPECT_TRUE(std::is_sorted(all.begin(), all.end(), [](const Refusal& a, const Refusal& b) { return a.step < b.step; }));
  EXPECT_EQ(verify_all(chain(1), dp(1), {from_lines(lines)}, 2).size(), 2u);
}

// Two micro-batches, each reduced by itself.
std::vector<std::string> twice_reduced_lines() {
  return {"COUNT axes=[\"dp\"]",                              // 0
          "F 0 0",                                            // 1
          "F 1 0",                                            // 2
          "B 1 0",                                            // 3
          "B 0 0",                                            // 4
          "REDUCE_GRAD 0 axes=[\"dp\"] sum=first units=[1]",  // 5
          "F 0 1",                                            // 6
          "F 1 1",                                            // 7
          "B 1 1",                                            // 8
          "B 0 1",                                            // 9
          "REDUCE_GRAD 0 axes=[\"dp\"] sum=last units=[1]",   // 10
          "NORM axes=[\"dp\"]",                               // 11
          "STEP 0",
          "STEP 1"};  // 12, 13
}

std::vector<Refusal> verify_two_micro_batches(const Edit& edit) {
  Lines lines = twice_reduced_lines();
  edit(lines);
  RankProgram program{.micro_batches = 2, .units = std::vector<UnitPlan>(2), .actions = {}};
  for (const std::string& line : lines) program.actions.push_back(parse_action(line));
  return verify_all(chain(0), dp(2), {program, program});
}

TEST(Verify, FollowsSumsOverMicroBatches) {
  EXPECT_EQ(text_of(verify_two_micro_batches([](Lines&) {})), "");
  expect_refusal(verify_two_micro_batches(replace(10, "REDUCE_GRAD 0 axes=[\"dp\"] units=[1]")), 10, "summed by action 5");
  expect_refusal(verify_two_micro_batches(replace(5, "REDUCE_GRAD 0 axes=[\"dp\"] units=[1]")), 10, "summed by action 5");
  expect_refusal(verify_two_micro_batches(both(erase(10), insert(6, "REDUCE_GRAD 0 axes=[\"dp\"] sum=last units=[1]"))), 6,
                 "no gradient");
  expect_refusal(verify_two_micro_batches(erase(10)), 7 + 1, "after its last reduction, action 5");
}

TEST(Verify, RequiresASumOfTheOtherUnitsToo) {
  ModelMaker maker;
  const int embed = maker.position("embed", {}, {maker.unit("embed", 10)});
  maker.position("experts", {embed}, {maker.unit("experts", 10, true, {{"dp", Placement::sharded, 0, 2}})});
  RankProgram program = base_program(maker.info, Mode::train, 1);
  program.actions[0] = parse_action("COUNT axes=[\"dp\"]");
  program.actions[5] = parse_action("NORM axes=[\"dp\"]");
  program.actions.insert(program.actions.begin() + 5, parse_action("REDUCE_GRAD 0 axes=[\"dp\"]"));
  EXPECT_EQ(text_of(verify_all(maker.info, dp(2), {program, program})), "") << "sharded parameters need no sum";
  maker.info.params[1].placements = {{"dp", Placement::sharded, 0, 4}};
  expect_refusal(verify_all(maker.info, dp(2), {program, program}), -1, "is sharded on axis 'dp' into 4 parts");
  maker.info.params[1].placements.clear();
  expect_refusal(verify_all(maker.info, dp(2), {program, program}), 6,
                 "unit 1 ('experts') was not summed over 'dp', along which ranks see other data");
}

TEST(Verify, RefusesFrozenUnitsInUpdates) {
  const ModelInfo model = mixed_model();
  RankProgram program = base_program(model, Mode::train, 1);
  program.actions.push_back(parse_action("STEP 2"));
  expect_refusal(verify_all(model, dp(1), {program}), static_cast<int>(program.actions.size()) - 1,
                 "unit 2 ('frozen') is frozen: remove it");
}

TEST(Verify, RefusesTrainingInEvaluation) {
  RankProgram program = base_program(chain(0), Mode::eval, 1);
  program.actions.push_back(parse_action("B 1 0"));
  program.actions.push_back(parse_action("STEP 0"));
  const auto refusals = verify_all(chain(0), dp(1), {program});
  expect_refusal(refusals, 4, "B belongs in a training program");
  EXPECT_EQ(refusals.size(), 2u);
  program = base_program(chain(0), Mode::generate, 1);
  program.actions.push_back(parse_action("NORM"));
  expect_refusal(verify_all(chain(0), dp(1), {program}), 2, "NORM has nothing to work on when generating");
  program = base_program(chain(0), Mode::eval, 1);
  std::swap(program.actions[2], program.actions[3]);
  expect_refusal(verify_all(chain(0), dp(1), {program}), 3, "put NORM after every F");
}

TEST(Verify, RefusesPlansThatDoNotFit) {
  RankProgram program = from_lines(stage_1_lines());
  program.units.pop_back();
  expect_refusal(verify_all(chain(1), dp(1), {program}), -1, "plans for 2 units, the model has 3");
  program = from_lines(stage_1_lines());
  program.units[0].shard_axes = {"pd"};
  expect_refusal(verify_all(chain(1), dp(1), {program}), -1, "no axis 'pd': known are 'dp'");
  program.units[0] = {.sum_axes = {"dp"}, .state = Residence::sharded};
  expect_refusal(verify_all(chain(1), dp(1), {program}), -1, "shards its state along no axis");
  program.units[0] = {.shard_axes = {"dp"}, .state = Residence::sharded};
  expect_refusal(verify_all(chain(1), dp(1), {program}), -1, "shards it along 'dp', over which its gradient is not summed");
  program.units[0] = {.sum_axes = {"dp", "dp"}};
  expect_refusal(verify_all(chain(1), dp(1), {program}), -1, "names axis 'dp' twice");
  program.units[0] = {};
  expect_refusal(verify_all(chain(1), dp(1), {program}), 12, "unit 0 ('embed') is not sharded, so there is nothing to gather");
  program = from_lines(stage_1_lines());
  program.micro_batches = 0;
  expect_refusal(verify_all(chain(1), dp(1), {program}), -1, "0 micro-batches");
}

TEST(Verify, RefusesRanksThatDisagree) {
  const RankProgram program = from_lines(stage_1_lines());
  RankProgram other = program;
  other.units[0] = {};
  const auto refusals = verify_all(chain(1), dp(2), {program, other});
  ASSERT_FALSE(refusals.empty());
  EXPECT_EQ(refusals[0].rank, 1);
  EXPECT_NE(refusals[0].reason.find("unit plan is not that of rank 0"), std::string::npos);
  EXPECT_THROW(verify_all(chain(1), dp(3), {program, program}), Misuse);
}

TEST(Verify, RefusesTheReductionAlongAnotherAxisThanTheShards) {
  Lines lines = stage_1_lines();
  lines[7] = "REDUCE_GRAD 1 axes=[\"ep\"]";
  const MeshShape mesh({{"dp", 2}, {"ep", 1}}, 2);
  const RankProgram program = from_lines(lines);
  const auto refusals = verify_all(chain(1), mesh, {program, program});
  const auto text = text_of(refusals);
  EXPECT_NE(text.find("action 7 (REDUCE_GRAD 1 axes=[\"ep\"]): the state of unit 1 ('blocks.0') is sharded along 'dp'"),
            std::string::npos)
      << text;
}

// The F, B and R of layers that communicate are collectives.
TEST(Verify, CountsTheCollectivesOfLayers) {
  ModelInfo model = chain(1);
  model.positions[1].axes = {"tp"};
  const MeshShape mesh({{"tp", 2}}, 2);
  const RankProgram program = base_program(model, Mode::train, 2);
  EXPECT_EQ(text_of(verify_all(model, mesh, {program, program})), "");
  EXPECT_NE(text_of(verify_all(model, dp(1), {program})).find("position 1 ('blocks.0') communicates on axis 'tp'"),
            std::string::npos);

  const RankProgram forwards = base_program(model, Mode::eval, 2);
  RankProgram other = forwards;  // micro-batch 1 first
  for (Action& action : other.actions) {
    if (action.micro_batch >= 0) action.micro_batch = 1 - action.micro_batch;
  }
  const auto refusals = verify_all(model, mesh, {forwards, other});
  ASSERT_EQ(refusals.size(), 1u) << text_of(refusals);
  EXPECT_EQ(
      refusals[0].text(),
      "rank 1, action 2 (F 1 1 keep=none): on axis tp it does not match the operation of rank 0, action 2 (F 1 0 keep=none): every "
      "rank of an axis makes the same collectives in the same order");
  const RankProgram recomputed = make_recompute(1)->apply(program, model, {});
  EXPECT_NE(text_of(verify_all(model, mesh, {program, recomputed})).find("rank 1, action 5 (R 1 0)"), std::string::npos);
}

// Ranks wait for each other in a cycle over two axes, although on each communicator all ranks have the same order.
TEST(Verify, FindsDeadlocksAcrossAxes) {
  const auto nothing = [](const Action&, const ModelInfo&) { return Resources{}; };
  register_kind({"GATHER_LOG", Index::none, false, "gathers what is logged", nothing});
  const MeshShape mesh({{"dp", 2}, {"tp", 2}}, 4);
  const auto with_order = [](const char* first, const char* second) {
    RankProgram program = base_program({}, Mode::train, 1);
    for (const char* axis : {first, second})
      program.actions.push_back(parse_action(fmt::format("GATHER_LOG axes=[\"{}\"]", axis)));
    return program;
  };
  const RankProgram dp_first = with_order("dp", "tp"), tp_first = with_order("tp", "dp");
  EXPECT_EQ(text_of(verify_all({}, mesh, {dp_first, dp_first, dp_first, dp_first})), "");
  EXPECT_EQ(text_of(verify_all({}, mesh, {dp_first, tp_first, dp_first, tp_first})), "") << "another order, but no cycle";
  const auto refusals = verify_all({}, mesh, {dp_first, tp_first, tp_first, dp_first});
  ASSERT_EQ(refusals.size(), 2u) << text_of(refusals);
  for (const char* text :
       {"rank 0, action 2 (GATHER_LOG axes=[\"dp\"]): it waits for ever on axis dp: rank 2 waits in its action 2 "
        "(GATHER_LOG axes=[\"tp\"]) on axis tp",
        "(1 more wait alike); the ranks 0, 2, 3, 1 wait for each other in a circle"}) {
    EXPECT_NE(refusals[0].text().find(text), std::string::npos) << text_of(refusals);
  }
}

TEST(Verify, FindsTheOddOneOfThree) {
  Lines lines = stage_1_lines();
  std::vector<RankProgram> programs(3, from_lines(lines));
  extra_reduction_at(1)(lines);
  programs[0] = from_lines(lines);
  const auto refusals = verify_all(chain(1), dp(3), programs);
  ASSERT_EQ(refusals.size(), 1u) << text_of(refusals);
  EXPECT_EQ(refusals[0].rank, 0) << "two ranks agree, so rank 0 is the wrong one";
}

// Kinds that a script registers are checked by their declared resources.
TEST(Verify, ChecksUnknownKindsByTheirResources) {
  const auto touching = [](ResourceId resource, bool writes) {
    return [=](const Action& action, const ModelInfo&) {
      const std::vector<Resource> all{{resource, action.target, resource == resource::value ? 0 : -1}};
      return writes ? Resources{{}, all} : Resources{all, {}};
    };
  };
  register_kind({"AVERAGE", Index::unit, false, "", touching(resource::master, true)});
  register_kind({"NOISE", Index::unit, false, "", touching(resource::grad, true)});
  register_kind({"LOOK", Index::position, false, "", touching(resource::value, false)});
  register_kind({"LOOK_FAR", Index::none, false, "", [](const Action&, const ModelInfo&) {
                   return Resources{{{resource::param, 77}}, {}};
                 }});
  const auto refusals = [](const Edit& edit) {
    Lines lines = stage_1_lines();
    edit(lines);
    return verify_all(chain(1), dp(1), {from_lines(lines)});
  };
  expect_refusal(refusals(insert(17, "AVERAGE 2")), 17, "leaves the parameters of unit 2 ('head') out of date");
  EXPECT_EQ(text_of(refusals(insert(12, "AVERAGE 0"))), "") << "gathered after";
  EXPECT_EQ(text_of(refusals(insert(6, "NOISE 2"))), "") << "each rank changes its part of the sum";
  expect_refusal(refusals(insert(11, "NOISE 2")), 11, "changes the gradient of unit 2 ('head') after action 10");
  EXPECT_EQ(text_of(refusals(insert(5, "NOISE 2"))), "");
  expect_refusal(refusals(insert(1, "LOOK 0")), 1, "whose F 0 0 comes later");
  expect_refusal(refusals(insert(9, "LOOK 1")), 9, "which action 6 (B 1 0) has freed");
  EXPECT_EQ(text_of(refusals(insert(2, "LOOK 0"))), "");
  expect_refusal(refusals(insert(2, "LOOK_FAR")), 2, "declares a resource that this model does not have");
  RankProgram program = from_lines(stage_1_lines());
  program.actions[3].kind = 9999;
  expect_refusal(verify_all(chain(1), dp(1), {program}), 3, "there is no action kind number 9999");
}

// A layer that sums over the batch must know of all ranks with other samples, and of those with other tokens of the same samples.
TEST(Verify, LayersThatSumOverTheBatchSeeAllOfIt) {
  ModelInfo model = chain(1);
  const std::vector<RankProgram> programs(2, from_lines(stage_1_lines()));
  const auto refused = [&](std::vector<std::string> known) {
    model.positions[1].batch_axes = std::move(known);
    return text_of(verify_all(model, dp(2), programs));
  };
  EXPECT_EQ(refused({"dp"}), "");
  EXPECT_NE(refused({"ep"}).find("ranks along 'dp' have other samples"), std::string::npos);
  model.tokens = TokenCut{.axis = "dp"};  // the axis of this small mesh stands for one that cuts tokens
  EXPECT_NE(refused({"ep"}).find("ranks along 'dp' have other tokens of the same samples: tell it how tokens are cut"),
            std::string::npos);
  EXPECT_EQ(refused({"dp"}).find("other tokens of the same samples: tell it"), std::string::npos);
  EXPECT_EQ(refused({}).find("other tokens of the same samples: tell it"), std::string::npos);
}

// 4 ranks with 5,000 actions take about 20 ms. The bound of a second only detects time that grows faster than the program.
TEST(Verify, IsFast) {
  const ModelInfo model = chain(60);
  std::vector<RankProgram> programs(4, base_program(model, Mode::train, 40));
  for (int rank = 0; rank < 4; ++rank) {  // four different programs of the same collectives
    RankProgram& program = programs[rank];
    program.actions[0].attrs["axes"] = Value::List{"dp"};
    program.actions[rank + 1].attrs["keep"] = "graph";
  }
  for (RankProgram& program : programs) {
    for (Action& action : program.actions) {
      if (action.kind == Kinds::get().norm) action.attrs["axes"] = Value::List{"dp"};
    }
  }
  ASSERT_GE(programs[0].actions.size(), 5000u);
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_EQ(text_of(verify_all(model, dp(4), programs)), "");
  const std::chrono::duration<double, std::milli> taken = std::chrono::steady_clock::now() - begin;
  RecordProperty("milliseconds", std::to_string(taken.count()));
  EXPECT_LT(taken.count(), 1000);
}

}  // namespace
}  // namespace zt::test
