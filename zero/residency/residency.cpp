#include "residency.h"

#include <algorithm>
#include <map>
#include <set>

#include "intervals.h"
#include "zt/base/error.h"

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

// Returns the intervals in which units are whole, sorted by their first action.
std::vector<ResidencyInterval> intervals_of(const std::vector<Action>& actions, const std::vector<UnitUse>& uses,
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
  std::vector<int64_t> sizes;
  for (const UnitInfo& unit : model.units) sizes.push_back(unit.numel);
  return intervals_in_memory(read, sizes, {ReuseRule{actions, uses, model, residency}, residency.max_live});
}

// Returns the actions before which UNSHARDs are inserted, by interval. An UNSHARD is placed at the begin of the interval that is
// `prefetch` intervals earlier, but after the unit's own previous interval, and only where `max_live` leaves room for the unit.
// The intervals are sorted by `first`, and keep the bound without being lengthened.
std::vector<int> unshard_places(const std::vector<ResidencyInterval>& intervals, size_t actions, const ModelInfo& model,
                                const Residency& residency) {
  std::vector<int64_t> live(actions, 0);  // by action: elements of the intervals placed so far that are whole
  std::vector<int> places;
  std::map<int, int> ends;  // by unit: end of its latest interval
  for (int k = 0; k < static_cast<int>(intervals.size()); ++k) {
    const ResidencyInterval& interval = intervals[k];
    const auto [end, is_first] = ends.try_emplace(interval.item, -1);
    const int wanted = std::max(intervals[std::max(0, k - residency.prefetch)].first, end->second + 1);
    const int64_t size = model.units[interval.item].numel;
    const auto has_room = [&](int index) { return residency.max_live <= 0 || live[index] + size <= residency.max_live; };
    int place = interval.first;
    while (place > wanted && has_room(place - 1)) --place;
    for (int index = place; index <= interval.last; ++index) live[index] += size;
    places.push_back(place);
    end->second = interval.last;
  }
  return places;
}

}  // namespace

std::vector<Action> insert_residency(std::vector<Action> actions, const ModelInfo& model, const Residency& residency) {
  const auto uses = uses_of(actions, model, residency.plans);
  const auto intervals = intervals_of(actions, uses, model, residency);
  const auto places = unshard_places(intervals, actions.size(), model, residency);
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
