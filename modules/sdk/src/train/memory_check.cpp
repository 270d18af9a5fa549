#include "memory_check.h"

#include <unistd.h>

#include <algorithm>

#include "execute/counts.h"
#include "zt/base/error.h"
#include "zt/base/machine.h"
#include "zt/base/tensor.h"
#include "zt/process/log.h"

namespace zt {

namespace {

int64_t bytes_of_plan(const RankPlan& plan) {
  int64_t bytes = 0;
  for (const auto& [kind, held] : plan.held) bytes += held;
  return bytes;
}

// "parameters 1.2 GiB, gradients 1.2 GiB"
std::string held_text(const RankPlan& plan) {
  std::string text;
  for (const auto& [kind, bytes] : plan.held) {
    if (bytes > 0) text += fmt::format("{}{} {}", text.empty() ? "" : ", ", kind, human_bytes(bytes));
  }
  return text.empty() ? "nothing" : text;
}

// The buffers of this machine's ranks, and whether this rank is the first of them.
struct Here {
  int64_t bytes = 0, of_process = 0;  // of_process: of those that are threads of this process
  int ranks = 0;
  bool is_first = true;
};

Here gather_here(const Plan& plan, int64_t mine) {
  Communicator* world = plan.world();
  if (!world) return {mine, mine, 1, true};
  const std::string name = machine_name();
  const int64_t process = getpid();
  Here here;
  const auto all =
      world->all_gather_values(Value::Table{{"machine", name}, {"process", process}, {"bytes", mine}}, "makes a trainer");
  for (int rank = 0; rank < static_cast<int>(all.size()); ++rank) {
    const auto& theirs = *all[rank].get_if<Value::Table>();
    if (*theirs.at("machine").get_if<std::string>() != name) continue;
    here.is_first = here.is_first && rank >= world->rank();
    const int64_t bytes = *theirs.at("bytes").get_if<int64_t>();
    here.bytes += bytes;
    if (*theirs.at("process").get_if<int64_t>() == process) here.of_process += bytes;
    ++here.ranks;
  }
  return here;
}

// Returns whether some ranks see other samples or tokens of a parameter, so that they could share its state.
bool can_shard(const Plan& plan) {
  const ModelInfo& model = plan.model();
  return std::ranges::any_of(plan.program().coord().shape.axes(), [&](const AxisSize& axis) {
    const auto sees_other_data = [&](const ParamInfo& param) {
      return placement_on(param.placements, axis.name) == Placement::replicated_other_data;
    };
    return axis.size > 1 && std::ranges::any_of(model.params, sees_other_data);
  });
}

// What shrinks the buffers: sharding the largest kind, more ranks, a smaller state.
std::vector<std::string> advice_on_buffers(const Plan& plan) {
  std::vector<std::string> advice;
  const auto& held = plan.rank().held;
  const auto& units = plan.main().units;
  const auto any_whole = [&](Residence UnitPlan::*data) {
    return std::ranges::find(units, Residence::whole, data) != units.end();
  };
  const bool trains = plan.trains();
  const int stage = trains && any_whole(&UnitPlan::state)   ? 1
                    : trains && any_whole(&UnitPlan::grads) ? 2
                    : any_whole(&UnitPlan::params)          ? 3
                                                            : 0;
  const bool is_sharable = can_shard(plan);
  if (is_sharable && stage > 0)
    advice.push_back(fmt::format("shard them by zero.shard{{stage = {}}}{}", stage, stage < 3 ? ", or a higher stage" : ""));
  advice.emplace_back(stage == 0 || is_sharable ? "use more ranks"
                      : stage == 3              ? "use more ranks and zero.shard{stage = 3}"
                                                : "use more ranks and zero.shard{stage = 1} to 3");
  const auto optimizer = std::ranges::find(held, "optimizer", [](const auto& line) { return line.first; });
  if (optimizer != held.end() && optimizer->second > 0)
    advice.emplace_back("take an optimizer with less state, or freeze parameters");
  advice.emplace_back("make the model smaller. ztoolkit plan tells what a script would need, without allocating it");
  return advice;
}

}  // namespace

std::string memory_advice(const Plan& plan, Lacking what) {
  std::vector<std::string> advice;
  if (what == Lacking::values) {
    advice = {"make a step of more micro-batches, or of shorter or fewer samples", "recompute blocks by zt.recompute"};
    if (plan.main().precision.params == at::kFloat) advice.emplace_back("compute in bf16");
  }
  for (std::string& more : advice_on_buffers(plan)) advice.push_back(std::move(more));
  return fmt::format("This rank's buffers are: {}. To need less, {}", held_text(plan.rank()), fmt::join(advice, "; or "));
}

void check_memory(const Plan& plan) {
  const Here here = gather_here(plan, plan.main().is_on_device ? plan.rank_units().host_bytes() : bytes_of_plan(plan.rank()));
  const MachineMemory memory = machine_memory();
  const auto need = [&] {
    return fmt::format("the buffers of {} on this machine need {}",
                       here.ranks == 1 ? "the rank" : fmt::format("the {} ranks", here.ranks), human_bytes(here.bytes));
  };
  run_together(plan.world(), [&] {
    const bool exceeds = memory.whole >= 0 && here.bytes > memory.whole;
    const bool exceeds_limit = memory.limit >= 0 && here.of_process > memory.limit;
    if (exceeds || exceeds_limit)
      misuse("{}, without activations, and {}. {}", need(), memory.text(), memory_advice(plan, Lacking::buffers));
  });
  if (here.is_first && memory.free >= 0 && here.bytes > memory.free)
    log(LogLevel::warn, plan.world_place(),
        fmt::format("{}, without activations, and {}: it may end for lack of memory. {}", need(), memory.text(),
                    memory_advice(plan, Lacking::buffers)));
}

}  // namespace zt
