#include "residency.h"

#include <algorithm>
#include <set>

#include "zt/base/error.h"
#include "zt/program/intervals.h"

namespace zt::zero {

namespace {

// The sharded units whose parameters an action reads, and whose gradients it writes.
struct UnitUse {
  std::vector<int> params_read, grads_written;
};

std::vector<UnitUse> uses_of(const std::vector<Action>& actions, const ModelInfo& model, const std::vector<UnitPlan>& plans) {
  const auto is_use = [&](const Resource& resource, ResourceId type) {
    return resource.type == type && plans.at(resource.index).params == Residence::sharded;
  };
  std::vector<UnitUse> uses;
  for (const Action& action : actions) {
    UnitUse& use = uses.emplace_back();
    const Resources resources = resources_of(action, model);
    for (const Resource& read : resources.reads) {
      if (is_use(read, resource::param)) use.params_read.push_back(read.index);
    }
    for (const Resource& write : resources.writes) {
      if (is_use(write, resource::grad)) use.grads_written.push_back(write.index);
    }
  }
  return uses;
}

// Decides whether a unit stays whole from one use to the next.
struct ReuseRule {
  const std::vector<Action>& actions;
  const std::vector<UnitUse>& uses;
  const ModelInfo& model;
  const Residency& residency;

  bool operator()(int unit, int from, int to) const {
    return residency.keep == StaysWhole::max_live || waits_for_backward(unit, from, to) || is_near(unit, from, to);
  }
  bool waits_for_backward(int unit, int from, int to) const {
    return residency.keep == StaysWhole::forward && actions[from].micro_batch == actions[to].micro_batch &&
           std::ranges::find(uses[from].grads_written, unit) == uses[from].grads_written.end();
  }
  // Returns whether at most max_reuse_distance elements of other units are used in between.
  bool is_near(int unit, int from, int to) const {
    std::set<int> others;
    int64_t elements = 0;
    for (int index = from + 1; index < to && elements <= residency.max_reuse_distance; ++index) {
      for (const int other : uses[index].params_read) {
        if (other != unit && others.insert(other).second) elements += model.units[other].numel;
      }
    }
    return elements <= residency.max_reuse_distance;
  }
};

std::vector<int64_t> sizes_of(const ModelInfo& model) {
  std::vector<int64_t> sizes;
  for (const UnitInfo& unit : model.units) sizes.push_back(unit.numel);
  return sizes;
}

// Returns the intervals in which units are whole, sorted by their first action.
std::vector<MemoryInterval> intervals_of(const std::vector<Action>& actions, const std::vector<UnitUse>& uses,
                                         const ModelInfo& model, const Residency& residency) {
  std::vector<std::vector<int>> read;
  for (size_t index = 0; index < uses.size(); ++index) {
    read.push_back(uses[index].params_read);
    int64_t elements = 0;
    for (const int unit : std::set<int>(read.back().begin(), read.back().end())) elements += model.units[unit].numel;
    if (residency.max_live > 0 && elements > residency.max_live)
      misuse("zero.shard: action {} ({}) needs {} elements of sharded parameters whole at once, but max_live is {}: raise it",
             index, action_text(actions[index]), elements, residency.max_live);
  }
  return intervals_in_memory(read, sizes_of(model), {ReuseRule{actions, uses, model, residency}, residency.max_live});
}

}  // namespace

std::vector<Action> insert_residency(std::vector<Action> actions, const ModelInfo& model, const Residency& residency) {
  const auto uses = uses_of(actions, model, residency.plans);
  const auto intervals = intervals_of(actions, uses, model, residency);
  const auto places = earliest_places(intervals, sizes_of(model), actions.size(), {residency.max_live, residency.prefetch});
  std::vector<std::vector<Action>> before(actions.size()), after(actions.size());
  for (size_t k = 0; k < intervals.size(); ++k) {
    const int unit = intervals[k].item;
    Action unshard{.kind = Kinds::get().unshard, .target = unit};
    unshard.set_axes(residency.plans[unit].shard_axes);
    if (residency.waits) unshard.attrs["wait"] = true;
    before[places[k]].push_back(std::move(unshard));
    after[intervals[k].last].push_back({.kind = Kinds::get().reshard, .target = unit});
  }
  std::vector<Action> result;
  for (size_t index = 0; index < actions.size(); ++index) {
    for (Action& action : before[index]) result.push_back(std::move(action));
    result.push_back(std::move(actions[index]));
    for (Action& action : after[index]) result.push_back(std::move(action));
  }
  return result;
}

}  // namespace zt::zero
