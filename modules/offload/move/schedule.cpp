#include "schedule.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <set>

#include "move/uses.h"
#include "zt/program/intervals.h"

namespace zt::offload {

namespace {

// Something on its way: where it is fetched and evicted, by action, and its place in memory.
struct Stay {
  Cargo item;
  int fetched, evicted, slot;
  int first_use;
  bool is_changed;
};

// Lets intervals end later where there is room: what has been changed with the begin of the next interval, so that the place in
// memory is taken again only after it had the time of an update to be written; unchanged data with the action that waits for
// those that read them.
std::vector<MemoryInterval> extended(std::vector<MemoryInterval> intervals, const PoolUses& uses, int places) {
  std::vector<int> held(uses.of_action.size() + 1, 0);  // by action: the intervals that cover it
  for (const MemoryInterval& interval : intervals) {
    for (int action = interval.first; action <= interval.last; ++action) ++held[static_cast<size_t>(action)];
  }
  std::vector<int> next(uses.items.size(), static_cast<int>(uses.of_action.size()));  // by item: the begin of its next interval
  for (size_t k = intervals.size(); k-- > 0;) {
    MemoryInterval& interval = intervals[k];
    const auto item = static_cast<size_t>(interval.item);
    int end = interval.last;
    if (!uses.is_changed_in(interval)) end = uses.waited_for(interval);
    else if (places > 2 && k + 1 < intervals.size()) end = intervals[k + 1].first;
    end = std::min(end, next[item] - 1);
    next[item] = interval.first;
    while (interval.last < end && held[static_cast<size_t>(interval.last) + 1] < places)
      ++held[static_cast<size_t>(++interval.last)];
  }
  return intervals;
}

// `slot`: the number of the pool's first place in memory.
std::vector<Stay> plan_stays(const PoolUses& uses, int places, int slot) {
  const std::vector<int64_t> sizes(uses.items.size(), 1);
  const auto in_use = intervals_in_memory(uses.of_action, sizes, {.bound = places});
  const auto taken = extended(in_use, uses, places);
  auto fetched = earliest_places(taken, sizes, uses.of_action.size(), {.bound = places});
  for (size_t k = 0; k < taken.size(); ++k) fetched[k] = std::min(std::max(fetched[k], uses.earliest), taken[k].first);
  std::vector<size_t> order(taken.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order, {}, [&](size_t k) { return fetched[k]; });
  // The action from which on a place in memory is free, and the place: the one that has been free for longest is taken.
  std::set<std::pair<int, int>> free;
  for (int place = 0; place < places; ++place) free.emplace(0, slot + place);
  std::vector<Stay> stays;
  for (const size_t k : order) {
    const int place = free.extract(free.begin()).value().second;
    free.emplace(taken[k].last + 1, place);
    const bool is_changed = uses.is_changed_in(in_use[k]);
    stays.push_back({.item = uses.items[static_cast<size_t>(taken[k].item)],
                     .fetched = fetched[k],
                     .evicted = is_changed ? in_use[k].last : taken[k].last,
                     .slot = place,
                     .first_use = in_use[k].first,
                     .is_changed = is_changed});
  }
  return stays;
}

// Parameters of a unit are in memory either as a whole or in slices: what is used later is fetched after the other was evicted.
void separate(std::vector<Stay>& stays) {
  std::map<int, std::vector<Stay*>> of_unit;
  for (Stay& stay : stays) {
    if (stay.item.data == UnitData::params) of_unit[stay.item.unit].push_back(&stay);
  }
  for (auto& [unit, all] : of_unit) {
    std::ranges::sort(all, {}, [](const Stay* stay) { return stay->first_use; });
    const Stay *whole = nullptr, *slice = nullptr;  // the last ones so far
    for (Stay* stay : all) {
      const Stay*& own = stay->item.is_whole() ? whole : slice;
      const Stay* other = stay->item.is_whole() ? slice : whole;
      if (other) stay->fetched = std::max(stay->fetched, other->evicted + 1);
      if (!own || own->evicted < stay->evicted) own = stay;
    }
  }
}

Action move_of(KindId kind, const Stay& stay, const RankProgram& program) {
  const UnitPlan& plan = program.units[static_cast<size_t>(stay.item.unit)];
  Action action{.kind = kind, .target = stay.item.unit};
  action.attrs = {{"what", word_of(stay.item.data)}, {"home", word_of(plan.home(stay.item.data).tier)}, {"slot", stay.slot}};
  if (!stay.item.is_whole() && plan.slices > 1)
    action.attrs.merge(Value::Table{{"part", stay.item.part}, {"parts", plan.slices}});
  if (stay.item.data == UnitData::state && program.precision.is_mixed()) action.attrs["master"] = true;
  if (kind == Kinds::get().evict && !stay.is_changed) action.attrs["unchanged"] = true;
  return action;
}

}  // namespace

void insert_moves(RankProgram& program, const ModelInfo& model, const PoolSizes& places) {
  std::vector<Stay> stays;
  int slot = 0;
  for (const auto& [pool, count] :
       {std::pair(Pool::state, places.state), std::pair(Pool::params, places.params), std::pair(Pool::units, places.units)}) {
    std::ranges::move(plan_stays(find_uses(program, model, pool), count, slot), std::back_inserter(stays));
    slot += count;
  }
  separate(stays);
  std::ranges::stable_sort(stays, {}, &Stay::first_use);
  const size_t n = program.actions.size();
  std::vector<std::vector<Action>> before(n), after(n);
  for (const Stay& stay : stays) {
    before[static_cast<size_t>(stay.fetched)].push_back(move_of(Kinds::get().fetch, stay, program));
    after[static_cast<size_t>(stay.evicted)].push_back(move_of(Kinds::get().evict, stay, program));
  }
  std::vector<Action> actions;
  for (size_t i = 0; i < n; ++i) {
    std::ranges::move(before[i], std::back_inserter(actions));
    actions.push_back(std::move(program.actions[i]));
    std::ranges::move(after[i], std::back_inserter(actions));
  }
  program.actions = std::move(actions);
}

}  // namespace zt::offload
