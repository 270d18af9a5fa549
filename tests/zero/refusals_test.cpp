// Edits programs of zero.shard, and checks that the verifier refuses them: replicated shards, updates in slices, max_live, memory
// that ranks share.
#include <gtest/gtest.h>

#include "sdk/program/program_models.h"
#include "sdk/verify/verify_support.h"
#include "support/message.h"
#include "zero/shard_support.h"

namespace zt::test {
namespace {

const MeshShape& groups_of_two() {
  static const MeshShape shape({{"replica", 2}, {"dp", 2}}, 4);
  return shape;
}

// Returns the program of rank 0 of two groups of two ranks, for a model of two units. Each unit has a bucket of its own.
RankProgram made_by(zero::ShardOptions options, int micro_batches = 1) {
  options.axis = axis_of("dp", 2);
  options.bucket_bytes = 0;
  return zero::make_shard(options)->apply(base_program(chain(0), Mode::train, micro_batches), chain(0), {groups_of_two(), 0});
}

// Returns the verifier's refusals: for two groups if shards are replicated, else for one.
std::string reasons(const RankProgram& program) {
  const bool has_groups = std::ranges::any_of(program.units, [](const UnitPlan& unit) { return unit.sum_axes.size() > 1; });
  const MeshShape mesh = has_groups ? groups_of_two() : MeshShape({{"replica", 1}, {"dp", 2}}, 2);
  return text_of(verify_all(chain(0), mesh, std::vector<RankProgram>(static_cast<size_t>(mesh.world_size()), program)));
}

// Returns the verifier's refusals of the program after its lines were edited.
std::string reasons_after(RankProgram program, const Edit& edit) {
  Lines lines;
  for (const Action& action : program.actions) lines.push_back(action_text(action));
  edit(lines);
  program.actions.clear();
  for (const std::string& line : lines) program.actions.push_back(parse_action(line));
  return reasons(program);
}

// Edits that select a line by its beginning.
int find(const Lines& lines, const std::string& begin) {
  const auto found = std::find_if(lines.begin(), lines.end(), [&](const std::string& line) { return line.starts_with(begin); });
  EXPECT_NE(found, lines.end()) << begin;
  return static_cast<int>(found - lines.begin());
}
Edit without(const std::string& begin) {
  return [=](Lines& lines) { erase(find(lines, begin))(lines); };
}
Edit put_before(const std::string& begin, const std::string& line) {
  return [=](Lines& lines) { insert(find(lines, begin), line)(lines); };
}
Edit exchange(const std::string& begin, const std::string& line) {
  return [=](Lines& lines) { replace(find(lines, begin), line)(lines); };
}

zero::ShardOptions replicated() {
  zero::ShardOptions options;
  options.stage = 1;
  options.replicate = axis_of("replica", 2);
  return options;
}

const std::string kReplicate1 = R"(REPLICATE_GRAD 1 axes=["replica"])";

TEST(Refusals, OfReplicatedShards) {
  const RankProgram good = made_by(replicated());
  EXPECT_EQ(reasons(good), "");
  EXPECT_CONTAINS(
      reasons_after(good, without("REPLICATE_GRAD 1")),
      "(NORM axes=[\"replica\",\"dp\"]): the gradient of unit 1 ('head') was not summed over 'replica', along which its "
      "shards are replicated: put REPLICATE_GRAD 1 before");
  EXPECT_CONTAINS(reasons_after(good, put_before("NORM", kReplicate1)),
                  "(" + kReplicate1 + "): it repeats action 5 (" + kReplicate1 + ")");
  EXPECT_CONTAINS(reasons_after(good, both(without("REPLICATE_GRAD 1"), put_before("REDUCE_GRAD 1", kReplicate1))),
                  "it sums what REDUCE_GRAD 1 has left: put it after that");
  EXPECT_CONTAINS(reasons_after(good, both(without("REPLICATE_GRAD 1"), put_before("STEP 0", kReplicate1))),
                  "put it after that and before NORM");
  EXPECT_CONTAINS(reasons_after(good, exchange("REPLICATE_GRAD 1", R"(REPLICATE_GRAD 1 axes=["dp"])")),
                  "the shards of unit 1 ('head') are replicated along 'replica': give axes=[\"replica\"]");
  EXPECT_CONTAINS(reasons_after(good, exchange("REPLICATE_GRAD 1", "REPLICATE_GRAD 1")), "it names no axis to communicate on");
  EXPECT_CONTAINS(reasons_after(good, exchange("NORM", R"(NORM axes=["dp"])")), "gradients are summed over 'replica' but");
  EXPECT_CONTAINS(reasons_after(good, exchange("COUNT", R"(COUNT axes=["dp"])")), "gradients are summed over 'replica' but");
}

TEST(Refusals, OfReplicatedShardsSummedInParts) {
  zero::ShardOptions options = replicated();
  options.reduce_every = "micro_batch";
  const RankProgram good = made_by(options, 2);
  EXPECT_EQ(reasons(good), "");
  EXPECT_CONTAINS(reasons_after(good, both(without("REPLICATE_GRAD 1"), put_before("F 0 1", kReplicate1))),
                  "it comes after action 7 (" + kReplicate1 + "): sum over 'dp' first");
}

TEST(Refusals, OfSumsOverGroupsThatAreNone) {
  zero::ShardOptions options;
  options.stage = 1;
  const RankProgram good = made_by(options);
  EXPECT_CONTAINS(reasons_after(good, put_before("NORM", kReplicate1)), "the shards of unit 1 ('head') are not replicated");
}

TEST(Refusals, OfPlansWithReplicas) {
  RankProgram program = made_by(replicated());
  program.units[1] = plan_of_stage(1);
  program.units[1].sum_axes = {"replicas", "dp"};
  EXPECT_CONTAINS(reasons(program), "the mesh replica=2 x dp=2 has no axis 'replicas': did you mean 'replica'?");
}

// Each unit is updated in three slices.
RankProgram in_slices() {
  zero::ShardOptions options;
  options.stage = 1;
  RankProgram program = made_by(options);
  std::vector<Action> actions;
  for (const Action& action : program.actions) {
    const bool is_step = action.kind == Kinds::get().step;
    for (int64_t part = 0; part < (is_step ? 3 : 1); ++part) {
      actions.push_back(action);
      if (is_step) actions.back().attrs = {{"part", part}, {"parts", 3}};
    }
  }
  program.actions = std::move(actions);
  return program;
}

TEST(Refusals, OfUpdatesInSlices) {
  const RankProgram good = in_slices();
  EXPECT_EQ(reasons(good), "");
  const auto refused = [&](const Edit& edit, const std::string& reason) { EXPECT_CONTAINS(reasons_after(good, edit), reason); };
  refused(without("STEP 0 part=1"), "part=2 of STEP 0 where part 1 is due: slices are updated in order, each once");
  refused(without("STEP 0 part=2"), "STEP 0 is missing: unit 0 ('embed') would never be updated");
  refused(put_before("STEP 0 part=2", "STEP 0 part=1 parts=3"), "part=1 of STEP 0 where part 2 is due");
  refused(put_before("STEP 1 part=0", "STEP 0 part=2 parts=3"), "a unit is updated once");
  refused(put_before("STEP 1 part=0", "STEP 0"), "a unit is updated once");
  refused(exchange("STEP 0 part=1", "STEP 0 part=0 parts=3"), "part=0 of STEP 0 where part 1 is due");
  refused(exchange("STEP 0 part=2", "STEP 0 part=3 parts=3"), "part=3 of parts=3: slices are counted from 0");
  refused(exchange("STEP 0 part=0", "STEP 0 part=-1 parts=3"), "part=-1 of parts=3");
  refused(exchange("STEP 0 part=0", "STEP 0 part=0 parts=0"), "part=0 of parts=0");
  refused(exchange("STEP 0 part=0", "STEP 0 part=first parts=3"), "part");
  // Parameters that were gathered between two slices are out of date after the second slice.
  refused(both(without("UNSHARD 0"), put_before("STEP 0 part=2", R"(UNSHARD 0 axes=["dp"])")),
          "leaves the parameters of unit 0 ('embed') out of date at the end");
}

// The first half, then the second and third thirds: elements between one third and one half would be updated twice.
TEST(Refusals, OfUpdatesInSlicesOfSeveralSizes) {
  EXPECT_CONTAINS(reasons_after(in_slices(), exchange("STEP 0 part=0", "STEP 0 part=0 parts=2")), "STEP 0");
}

TEST(Refusals, OfMoreElementsThanMayBeWhole) {
  zero::ShardOptions options;
  options.stage = 3;
  options.node_shared = false;
  options.prefetch = 0;
  options.max_live = 150;
  const RankProgram good = made_by(options);
  EXPECT_EQ(reasons(good), "");
  const std::string unshard_1 = R"(UNSHARD 1 axes=["dp"])";
  EXPECT_CONTAINS(reasons_after(good, both(without("UNSHARD 1"), put_before("F 0 0", unshard_1))),
                  "200 elements of sharded parameters are whole after it, and max_live is 150: put a RESHARD before");
  RankProgram loose = good;
  loose.max_live = 200;
  EXPECT_EQ(reasons_after(loose, both(without("UNSHARD 1"), put_before("F 0 0", unshard_1))), "");
  RankProgram tight = good;
  tight.max_live = 99;
  EXPECT_CONTAINS(reasons(tight), "100 elements of sharded parameters are whole after it, and max_live is 99");
}

TEST(Refusals, OfASharedCopy) {
  zero::ShardOptions options;
  options.stage = 3;
  options.node_shared = true;
  const RankProgram good = made_by(options);
  EXPECT_EQ(reasons(good), "");
  RankProgram program = good;
  program.units[1] = {.sum_axes = {"dp"}, .params = Residence::node_shared};
  EXPECT_CONTAINS(reasons(program), "the plan of unit 1 ('head') shares parameters on a node whose state is not sharded");
  program.units[1] = good.units[1];
  program.units[1].state = Residence::node_shared;
  EXPECT_CONTAINS(reasons(program), "the plan of unit 1 ('head') shares state or gradients on a node");
  // UNSHARD is the barrier after STEP.
  EXPECT_CONTAINS(reasons_after(good, without("UNSHARD 1")), "leaves the parameters of unit 1 ('head') out of date at the end");
}

}  // namespace
}  // namespace zt::test
