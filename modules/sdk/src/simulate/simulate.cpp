#include "simulate.h"

#include <algorithm>

#include "plan/plan_table.h"
#include "simulate/action_times.h"

namespace zt {

ZT_DEFINE_OBJECT(Simulation, "Simulation")

namespace {

// Stands for an optimizer that is not known yet, in a plan that updates nothing.
class TwoStates : public Optimizer {
 public:
  std::string kind() const override { return "two states"; }
  double lr() const override { return 0; }
  std::vector<std::string> state_names() const override { return {"first", "second"}; }
  int group_of(const ParamInfo&) const override { return 0; }
  void step(FlatState&, const at::Tensor&, std::span<const Segment>, const Scalars&) const override {}
};

std::vector<const RankProgram*> programs_of(const Plan& plan) {
  std::vector<const RankProgram*> programs;
  for (const auto& program : plan.programs_of_ranks()) programs.push_back(program.get());
  return programs;
}

// Returns the operations of forwards and backwards, without those of layers that run again.
double flops_of(const RankProgram& program, const Rehearsal& rehearsal) {
  double flops = 0;
  for (size_t step = 0; step < program.actions.size(); ++step) {
    if (program.actions[step].kind != Kinds::get().recompute) flops += rehearsal.actions[step].flops;
  }
  return flops;
}

// Describes and rehearses a rank, and all those that have other tokens of its samples: the work of attention is not the same for
// all tokens, and the last ranks may have fewer of them.
PlayedPart part_of(const Plan& plan, const StepBatch& batch, const Coord& coord, const RankProgram& program) {
  const auto& tokens = plan.model().tokens;
  const std::vector<int> ranks = tokens && coord.shape.has(tokens->axis)
                                     ? coord.shape.group(coord.rank, std::vector{tokens->axis})
                                     : std::vector{coord.rank};
  PlayedPart part;
  double most = -1;
  for (const int rank : ranks) {
    const Coord each{coord.shape, rank};
    RankUnits held = plan.describe_rank(each);
    Rehearsal rehearsal = rehearse(plan.inputs(plan.cut(batch), each), program, held, each);
    const double flops = flops_of(program, rehearsal);
    part.mean_flops += flops / static_cast<double>(ranks.size());
    if (part.peak_action < 0 || rehearsal.peak_bytes() > part.peak_bytes) {
      part.peak_bytes = rehearsal.peak_bytes();
      part.peak_action = rehearsal.peak_action();
    }
    if (flops <= most) continue;
    most = flops;
    part.held = std::move(held);
    part.rehearsal = std::move(rehearsal);
  }
  return part;
}

// Describes and rehearses each played rank; those with one program alike.
std::vector<PlayedPart> parts_of(const Plan& plan, const PlayedRanks& played, const StepBatch& batch) {
  std::vector<PlayedPart> parts;
  std::map<const RankProgram*, size_t> known;
  for (const PlayedRank& rank : played.ranks) {
    const auto [found, is_new] = known.emplace(rank.program, parts.size());
    parts.push_back(is_new ? part_of(plan, batch, {played.mesh, rank.rank}, *rank.program) : parts[found->second]);
  }
  return parts;
}

SimulatedAction describe_action(const Action& action, const PlayedLine& line, size_t step, double begin, int64_t held) {
  const PlaySpan &compute = line.computes[step], &transfer = line.transfers[step];
  return {.text = action_text(action),
          .kind = kind(action.kind).name,
          .role = role_of(action),
          .target = action.target,
          .micro_batch = action.micro_batch,
          .begin = compute.begin - begin,
          .end = compute.end - begin,
          .transfer_begin = transfer.length() > 0 ? transfer.begin - begin : 0,
          .transfer_end = transfer.length() > 0 ? transfer.end - begin : 0,
          .held_bytes = held};
}

std::vector<int> ranks_played_as(const PlayedRanks& played, int index) {
  std::vector<int> ranks;
  for (int rank = 0; rank < static_cast<int>(played.played_as.size()); ++rank) {
    if (played.played_as[rank] == index) ranks.push_back(rank);
  }
  return ranks;
}

SimulatedRank describe_simulated(const Plan& plan, const PlayedRanks& played, int index, const PlayedPart& part) {
  const PlayedRank& mine = played.ranks[index];
  const RankPlan constant =
      plan_rank({plan.model(), *mine.program, part.held, plan.optimizer_states()}, {played.mesh, mine.rank});
  SimulatedRank rank;
  rank.ranks = ranks_played_as(played, index);
  rank.name = ranges_text(rank.ranks);
  for (const auto& [kind, bytes] : constant.held) rank.constant_bytes += bytes;
  rank.peak_bytes = rank.constant_bytes + part.peak_bytes;
  if (part.peak_action >= 0) rank.peak_action = action_text(mine.program->actions[part.peak_action]);
  return rank;
}

// "pipe.split zb_v, zero.shard stage 1, 8 micro-batches"
std::string describe_program(const Plan& plan) {
  std::string text;
  for (const auto& pass : plan.program().passes()) text += pass->summary() + ", ";
  return text + counted(plan.main().micro_batches, "micro-batch");
}

int64_t tokens_of(const Batch& batch) {
  const auto tokens = batch.find("tokens");
  return tokens == batch.end() ? 0 : tokens->second.numel();
}

StepWork work_of(const Plan& plan, const PlayedRanks& played, const std::vector<PlayedPart>& parts,
                 const std::vector<Batch>& micro_batches, const Costs& costs) {
  StepWork work;
  for (const Batch& batch : micro_batches) {
    work.samples += samples_of(batch) * plan.data_ranks();
    work.tokens += tokens_of(batch) * plan.data_ranks();
  }
  for (size_t index = 0; index < parts.size(); ++index) work.flops += parts[index].mean_flops * played.ranks[index].count;
  const auto rate = costs.hardware.flops.find(float_type_name(plan.main().precision.params));
  if (costs.hardware.name != kMeasuredMachine && rate != costs.hardware.flops.end())
    work.peak = rate->second * played.mesh.world_size();
  return work;
}

// Returns the rates for the actions that were not measured; empty if all were.
std::string assumed_rates(const Plan& plan, const PlayedRanks& played, const Costs& costs) {
  const bool uses_rates = std::ranges::any_of(played.ranks, [&](const PlayedRank& rank) {
    return std::ranges::any_of(rank.program->actions, [&](const Action& action) {
      return !costs.measured.contains(measured_name(action, plan.model()));
    });
  });
  if (!uses_rates) return "";
  const std::string rates = describe(costs.hardware, float_type_name(plan.main().precision.params));
  return (costs.measured.empty() ? "" : "for what was not measured: ") + rates;
}

constexpr int kSteps = 2;  // in a row: the second begins as the steps of a long run do

}  // namespace

std::shared_ptr<Simulation> simulate(const Plan& plan, const StepBatch& batch, const Costs& costs) {
  const ModelInfo& model = plan.model();
  const PlayedRanks played = played_ranks(model, plan.program().coord().shape, programs_of(plan));
  const std::vector<PlayedPart> parts = parts_of(plan, played, batch);
  const ActionTimes times(plan, played, parts, costs);
  const PlayResult result =
      play(played, model,
           {.waiting = Waiting::when_needed,
            .time = [&](int index, int step, size_t call) { return times.of(index, step, call); },
            .buffer_of = [&](int index, const Resource& resource) { return parts[index].held.slots.buffer_of(resource); },
            .repeats = kSteps});
  double begin = result.lines.front().begin, last_begin = 0, end = 0;
  for (const PlayedLine& line : result.lines) {
    begin = std::min(begin, line.begin);
    last_begin = std::max(last_begin, line.begin);
    end = std::max(end, line.end);
  }
  auto simulation = std::make_shared<Simulation>();
  simulation->seconds = end - last_begin;
  simulation->costs = costs.hardware.name.empty() ? "without a name" : costs.hardware.name;
  simulation->assumed = assumed_rates(plan, played, costs);
  simulation->program = describe_program(plan);
  simulation->world_size = played.mesh.world_size();
  simulation->work = work_of(plan, played, parts, plan.cut(batch), costs);
  simulation->mesh = played.mesh.axes().empty() ? "one rank" : played.mesh.text();
  for (int index = 0; index < static_cast<int>(played.ranks.size()); ++index) {
    SimulatedRank& rank = simulation->ranks.emplace_back(describe_simulated(plan, played, index, parts[index]));
    const auto& actions = played.ranks[index].program->actions;
    for (size_t step = 0; step < actions.size(); ++step) {
      rank.actions.push_back(
          describe_action(actions[step], result.lines[index], step, begin, parts[index].rehearsal.actions[step].held));
    }
    set_bubbles(rank, simulation->seconds);
  }
  return simulation;
}

std::shared_ptr<Simulation> simulate(std::shared_ptr<const Program> program, std::shared_ptr<const Optimizer> optimizer,
                                     const StepBatch& batch, const Costs& costs) {
  if (!optimizer) optimizer = std::make_shared<TwoStates>();
  return simulate(*Plan::make(std::move(program), std::move(optimizer)), batch, costs);
}

}  // namespace zt
