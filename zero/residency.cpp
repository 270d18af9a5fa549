#include "residency.h"

#include <algorithm>
#include <map>
#include <set>

namespace zt::zero {

namespace {

// A unit is whole from action `first` to action `last`.
struct Stay {
  int unit = 0, first = 0, last = 0;
};

// Sharded units that each action uses.
std::vector<std::vector<int>> uses_of(const std::vector<Action>& actions, const ModelInfo& model,
                                      const std::vector<bool>& units) {
  std::vector<std::vector<int>> uses;
  for (const Action& action : actions) {
    auto& used = uses.emplace_back();
    for (const Resource& read : kind(action.kind).resources(action, model).reads) {
      if (read.kind == ResourceKind::param && units.at(read.index)) used.push_back(read.index);
    }
  }
  return uses;
}

// Whether at most `most` elements of other units are used between the actions `from` and `to`.
bool is_near(const std::vector<std::vector<int>>& uses, const ModelInfo& model, int unit, int from, int to, int64_t most) {
  std::set<int> others;
  int64_t elements = 0;
  for (int index = from + 1; index < to && elements <= most; ++index) {
    for (const int other : uses[index]) {
      if (other != unit && others.insert(other).second) elements += model.units[other].numel;
    }
  }
  return elements <= most;
}

// In the order in which they begin.
std::vector<Stay> stays_of(const std::vector<std::vector<int>>& uses, const ModelInfo& model, int64_t max_reuse_distance) {
  std::vector<Stay> stays;
  std::vector<int> latest(model.units.size(), -1);
  for (int index = 0; index < static_cast<int>(uses.size()); ++index) {
    for (const int unit : uses[index]) {
      const bool stayed = latest[unit] >= 0 && is_near(uses, model, unit, stays[latest[unit]].last, index, max_reuse_distance);
      if (!stayed) {
        latest[unit] = static_cast<int>(stays.size());
        stays.push_back({unit, index, index});
      }
      stays[latest[unit]].last = index;
    }
  }
  return stays;
}

// The action that each stay's UNSHARD goes before: where the stay begins that is `prefetch` ones earlier, but not before the
// unit's own earlier stay has ended.
std::vector<int> places_of(const std::vector<Stay>& stays, int prefetch) {
  std::vector<int> places;
  std::map<int, int> ends;  // of the units' latest stays
  for (int k = 0; k < static_cast<int>(stays.size()); ++k) {
    const auto [end, is_first] = ends.try_emplace(stays[k].unit, -1);
    places.push_back(std::max(stays[std::max(0, k - prefetch)].first, end->second + 1));
    end->second = stays[k].last;
  }
  return places;
}

Action action_of(KindId kind, int unit) {
  return {.kind = kind, .target = unit};
}

}  // namespace

std::vector<Action> insert_residency(std::vector<Action> actions, const ModelInfo& model, const std::vector<bool>& units,
                                     const Residency& residency) {
  const auto uses = uses_of(actions, model, units);
  const auto stays = stays_of(uses, model, residency.max_reuse_distance);
  const auto places = places_of(stays, residency.prefetch);
  std::vector<std::vector<Action>> before(actions.size()), after(actions.size());
  for (size_t k = 0; k < stays.size(); ++k) {
    Action unshard = action_of(Kinds::get().unshard, stays[k].unit);
    unshard.attrs["axes"] = Value::List{residency.axis};
    before[places[k]].push_back(std::move(unshard));
    after[stays[k].last].push_back(action_of(Kinds::get().reshard, stays[k].unit));
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
