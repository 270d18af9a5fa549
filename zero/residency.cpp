#include "residency.h"

#include <algorithm>
#include <map>
#include <set>

#include "zt/base/error.h"

namespace zt::zero {

namespace {

// An interval of actions, from `first` to `last`, in which a unit is whole.
struct ResidencyInterval {
  int unit = 0, first = 0, last = 0;
};

// The sharded units whose parameters an action reads, and whose gradients it writes.
struct Use {
  std::vector<int> params_read, grads_written;
};

std::vector<Use> uses_of(const std::vector<Action>& actions, const ModelInfo& model, const std::vector<UnitPlan>& plans) {
  const auto is_use = [&](const Resource& resource, ResourceKind kind) {
    return resource.kind == kind && plans.at(resource.index).params == Residence::sharded;
  };
  std::vector<Use> uses;
  for (const Action& action : actions) {
    Use& use = uses.emplace_back();
    const Resources resources = resources_of(action, model);
    for (const Resource& read : resources.reads) {
      if (is_use(read, ResourceKind::param)) use.params_read.push_back(read.index);
    }
    for (const Resource& write : resources.writes) {
      if (is_use(write, ResourceKind::grad)) use.grads_written.push_back(write.index);
    }
  }
  return uses;
}

// Decides whether a unit stays whole from one use to the next.
class ReuseRule {
 public:
  ReuseRule(const std::vector<Action>& actions, const std::vector<Use>& uses, const ModelInfo& model, const Residency& residency)
      : actions_(actions), uses_(uses), model_(model), residency_(residency) {}

  bool stays(int unit, int from, int to) const { return waits_for_backward(unit, from, to) || is_near(unit, from, to); }

 private:
  bool waits_for_backward(int unit, int from, int to) const {
    const auto& grads_written = uses_[from].grads_written;
    return residency_.keeps_forward && actions_[from].micro_batch == actions_[to].micro_batch &&
           std::find(grads_written.begin(), grads_written.end(), unit) == grads_written.end();
  }

  // Returns whether at most max_reuse_distance elements of other units are used in between.
  bool is_near(int unit, int from, int to) const {
    std::set<int> others;
    int64_t elements = 0;
    for (int index = from + 1; index < to && elements <= residency_.max_reuse_distance; ++index) {
      for (const int other : uses_[index].params_read) {
        if (other != unit && others.insert(other).second) elements += model_.units[other].numel;
      }
    }
    return elements <= residency_.max_reuse_distance;
  }

  const std::vector<Action>& actions_;
  const std::vector<Use>& uses_;
  const ModelInfo& model_;
  const Residency& residency_;
};

// Returns the intervals in which units are whole, sorted by their first action.
std::vector<ResidencyInterval> intervals_of(const std::vector<Use>& uses, const ReuseRule& reuse, size_t units) {
  std::vector<ResidencyInterval> intervals;
  std::vector<int> latest(units, -1);
  for (int index = 0; index < static_cast<int>(uses.size()); ++index) {
    for (const int unit : uses[index].params_read) {
      if (latest[unit] < 0 || !reuse.stays(unit, intervals[latest[unit]].last, index)) {
        latest[unit] = static_cast<int>(intervals.size());
        intervals.push_back({unit, index, index});
      }
      intervals[latest[unit]].last = index;
    }
  }
  return intervals;
}

// Finds the actions before which UNSHARDs are inserted. An UNSHARD is placed at the begin of the interval that is `prefetch`
// intervals earlier, but after the unit's own previous interval, and only where `max_live` leaves room for the unit.
class UnshardPlaces {
 public:
  UnshardPlaces(const std::vector<Action>& actions, const ModelInfo& model, const Residency& residency)
      : actions_(actions), model_(model), residency_(residency), live_(actions.size(), 0) {}

  std::vector<int> find(const std::vector<ResidencyInterval>& intervals) {
    std::vector<int> places;
    std::map<int, int> ends;  // by unit: end of its latest interval
    for (int k = 0; k < static_cast<int>(intervals.size()); ++k) {
      const auto [end, is_first] = ends.try_emplace(intervals[k].unit, -1);
      const int wanted = std::max(intervals[std::max(0, k - residency_.prefetch)].first, end->second + 1);
      places.push_back(residency_.max_live > 0 ? with_room(intervals[k], wanted) : wanted);
      end->second = intervals[k].last;
    }
    return places;
  }

 private:
  int with_room(const ResidencyInterval& interval, int wanted) {
    const int64_t size = model_.units[interval.unit].numel;
    const auto has_room = [&](int index) { return live_[index] + size <= residency_.max_live; };
    for (int index = interval.first; index <= interval.last; ++index) {
      if (has_room(index)) continue;
      misuse(
          "zero.shard: at action {} ({}) {} elements of sharded parameters must be whole, but max_live is {}: raise it, or "
          "keep fewer units whole (keep, max_reuse_distance)",
          index, action_text(actions_[index]), live_[index] + size, residency_.max_live);
    }
    int place = interval.first;
    while (place > wanted && has_room(place - 1)) --place;
    for (int index = place; index <= interval.last; ++index) live_[index] += size;
    return place;
  }

  const std::vector<Action>& actions_;
  const ModelInfo& model_;
  const Residency& residency_;
  std::vector<int64_t> live_;  // by action: elements of the intervals placed so far that are whole
};

Action unit_action(KindId kind, int unit) {
  return {.kind = kind, .target = unit};
}

}  // namespace

std::vector<Action> insert_residency(std::vector<Action> actions, const ModelInfo& model, const Residency& residency) {
  const auto uses = uses_of(actions, model, residency.plans);
  const auto intervals = intervals_of(uses, ReuseRule(actions, uses, model, residency), model.units.size());
  const auto places = UnshardPlaces(actions, model, residency).find(intervals);
  std::vector<std::vector<Action>> before(actions.size()), after(actions.size());
  for (size_t k = 0; k < intervals.size(); ++k) {
    Action unshard = unit_action(Kinds::get().unshard, intervals[k].unit);
    const auto& axes = residency.plans[intervals[k].unit].shard_axes;
    unshard.attrs["axes"] = Value::List(axes.begin(), axes.end());
    if (residency.waits) unshard.attrs["wait"] = true;
    before[places[k]].push_back(std::move(unshard));
    after[intervals[k].last].push_back(unit_action(Kinds::get().reshard, intervals[k].unit));
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
