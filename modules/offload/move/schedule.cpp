#include "schedule.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <set>

#include "zt/program/intervals.h"

namespace zt::offload {

namespace {

// Something on its way: where it is fetched and evicted, by action, and its place in memory.
struct Stay {
  Cargo item;
  int fetched, evicted, slot;
  int first_use;
  bool is_changed, is_fresh = false, is_summed = false, has_squares = false, is_on_host = false;
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
  const auto may_stay = [&](int item, int from, int to) { return uses.may_stay(item, from, to); };
  const auto in_use = intervals_in_memory(uses.of_action, sizes, {may_stay, places});
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

// Gradients and parameters of a unit are in memory either as a whole or in slices: what is used later is fetched after the other
// was evicted.
void separate(std::vector<Stay>& stays) {
  std::map<std::pair<UnitData, int>, std::vector<Stay*>> of_unit;
  for (Stay& stay : stays) of_unit[{stay.item.data, stay.item.unit}].push_back(&stay);
  for (auto& [unit, all] : of_unit) {
    std::ranges::sort(all, {}, [](const Stay* stay) { return stay->first_use; });
    Stay *whole = nullptr, *slice = nullptr;  // the last ones so far
    for (Stay* stay : all) {
      Stay*& own = stay->item.is_whole() ? whole : slice;
      if (Stay* other = stay->item.is_whole() ? slice : whole) {
        other->evicted = std::min(other->evicted, stay->first_use - 1);
        stay->fetched = std::max(stay->fetched, other->evicted + 1);
      }
      if (!own || own->evicted < stay->evicted) own = stay;
    }
  }
}

// Says of gradients which ones are written as a whole before they are read, which leave from where they were summed, and where
// the squares of complete ones are added.
void mark_sums(std::vector<Stay>& stays, const RankProgram& program) {
  const Kinds& kinds = Kinds::get();
  const int norm = static_cast<int>(std::ranges::find(program.actions, kinds.norm, &Action::kind) - program.actions.begin());
  std::map<int, Stay*> last;  // by unit: the last one before NORM
  for (Stay& stay : stays) {
    if (stay.item.pool() != Pool::sums) continue;
    stay.is_summed = is_summed_in_own_buffer(stay.item, program);
    const Action& first = program.actions[static_cast<size_t>(stay.first_use)];
    const bool is_reduction = first.kind == kinds.reduce_grad;
    stay.is_fresh =
        is_reduction && (first.gradient_part() == GradientPart::whole || first.gradient_part() == GradientPart::first);
    if (stay.is_fresh) stay.fetched = stay.first_use;
    Stay*& known = last[stay.item.unit];
    if (stay.evicted < norm && (!known || known->evicted < stay.evicted)) known = &stay;
  }
  for (const auto& [unit, stay] : last) {
    if (stay) stay->has_squares = true;
  }
}

// Returns the slices whose updates work in the host's memory, by unit and part.
std::set<std::pair<int, int>> slices_on_host(const RankProgram& program) {
  std::set<std::pair<int, int>> slices;
  for (const Action& action : program.actions) {
    if (action.kind == Kinds::get().step && action.is_in_host_memory())
      slices.emplace(action.target, static_cast<int>(action.number("part", 0)));
  }
  return slices;
}

Action move_of(KindId kind, const Stay& stay, const RankProgram& program) {
  const UnitPlan& plan = program.units[static_cast<size_t>(stay.item.unit)];
  Action action{.kind = kind, .target = stay.item.unit};
  action.attrs = {{"what", word_of(stay.item.data)}, {"home", word_of(plan.home(stay.item.data).tier)}, {"slot", stay.slot}};
  if (!stay.item.is_whole() && plan.slices > 1)
    action.attrs.merge(Value::Table{{"part", stay.item.part}, {"parts", plan.slices}});
  if (stay.item.data == UnitData::state && program.precision.is_mixed()) action.attrs["master"] = true;
  if (stay.is_on_host) action.attrs["memory"] = word_of(Tier::host);
  if (kind == Kinds::get().fetch) {
    if (stay.is_fresh) action.attrs["fresh"] = true;
    return action;
  }
  if (!stay.is_changed) action.attrs["unchanged"] = true;
  if (stay.is_summed) action.attrs["summed"] = true;
  if (stay.has_squares) {
    const std::vector<std::string> axes = std::ranges::find(program.actions, Kinds::get().norm, &Action::kind)->axes();
    action.attrs["squares"] = Value::List(axes.begin(), axes.end());
  }
  return action;
}

}  // namespace

std::vector<PoolUses> all_uses(const RankProgram& program, const ModelInfo& model) {
  std::vector<PoolUses> uses;
  for (const Pool pool : kAllPools) uses.push_back(find_uses(program, model, pool));
  return uses;
}

void insert_moves(RankProgram& program, const std::vector<PoolUses>& uses, const PoolSizes& places) {
  std::vector<Stay> stays;
  for (size_t pool = 0; pool < uses.size(); ++pool) {
    // Programs of all modes share the places, so each pool has the same numbers in all of them.
    const int first_slot = static_cast<int>(pool) * kMostPlaces;
    std::ranges::move(plan_stays(uses[pool], places[pool], first_slot), std::back_inserter(stays));
  }
  mark_sums(stays, program);
  const auto on_host = slices_on_host(program);
  for (Stay& stay : stays) stay.is_on_host = on_host.contains({stay.item.unit, stay.item.part});
  separate(stays);
  std::ranges::stable_sort(stays, {}, &Stay::first_use);
  const size_t n = program.actions.size();
  std::vector<std::vector<Action>> before(n), after(n);
  for (const Stay& stay : stays) {
    if (!stay.is_summed) before[static_cast<size_t>(stay.fetched)].push_back(move_of(Kinds::get().fetch, stay, program));
    after[static_cast<size_t>(stay.evicted)].push_back(move_of(Kinds::get().evict, stay, program));
  }
  insert_around(program, std::move(before), std::move(after));
}

}  // namespace zt::offload
