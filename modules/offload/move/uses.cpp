#include "uses.h"

#include <algorithm>
#include <map>
#include <optional>

namespace zt::offload {

namespace {

// Returns the data that a resource is, if they may lie elsewhere.
std::optional<UnitData> data_of(const Resource& resource, const RankProgram& program) {
  if (resource.type == resource::state) return UnitData::state;
  if (resource.type == resource::shard) return UnitData::params;
  if (resource.type == resource::master) return program.precision.is_mixed() ? UnitData::state : UnitData::params;
  return std::nullopt;
}

Pool pool_of(const Cargo& item) {
  if (item.data == UnitData::state) return Pool::state;
  return item.is_whole() ? Pool::units : Pool::params;
}

// Returns what an action needs that touches the resource. What touches slices that are not those of the unit is refused by the
// verifier.
std::optional<Cargo> item_of(const Resource& resource, const RankProgram& program) {
  const auto data = data_of(resource, program);
  if (!data) return std::nullopt;
  const UnitPlan& plan = program.units[static_cast<size_t>(resource.index)];
  const Home& home = plan.home(*data);
  if (!plan.held || !home.is_elsewhere()) return std::nullopt;
  if (*data == UnitData::params && resource.parts == 1) return Cargo{*data, resource.index, -1};
  if (resource.parts != plan.slices || resource.part < home.stays) return std::nullopt;
  return Cargo{*data, resource.index, resource.part};
}

// By action, the next action that reads or frees parameters of a unit that it gathers; itself if there is none. The executor
// waits for the work there.
std::vector<int> find_waits(const std::vector<Resources>& declared, const std::vector<Action>& actions) {
  std::vector<int> waits(declared.size());
  std::map<int, int> reader;  // by unit: the next action
  for (int i = static_cast<int>(declared.size()) - 1; i >= 0; --i) {
    const Resources& resources = declared[static_cast<size_t>(i)];
    waits[static_cast<size_t>(i)] = i;
    if (role_of(actions[static_cast<size_t>(i)]) == Role::residency) {
      for (const Resource& written : resources.writes) {
        if (written.type == resource::param && reader.contains(written.index))
          waits[static_cast<size_t>(i)] = std::max(waits[static_cast<size_t>(i)], reader[written.index]);
      }
    }
    for (const auto* list : {&resources.reads, &resources.writes, &resources.frees}) {
      for (const Resource& touched : *list) {
        if (touched.type == resource::param) reader[touched.index] = i;
      }
    }
  }
  return waits;
}

// Parameters are needed by forwards, from COUNT on; a step by hand begins after it. The rest is needed after the forwards.
int first_place(const RankProgram& program, Pool pool) {
  int place = 0;
  for (int i = 0; i < static_cast<int>(program.actions.size()); ++i) {
    const KindId kind = program.actions[static_cast<size_t>(i)].kind;
    if (kind == Kinds::get().count || (pool != Pool::units && kind == Kinds::get().forward)) place = i + 1;
  }
  return place;
}

}  // namespace

bool PoolUses::is_changed_in(const MemoryInterval& interval) const {
  for (int action = interval.first; action <= interval.last; ++action) {
    if (std::ranges::count(changed[static_cast<size_t>(action)], interval.item) > 0) return true;
  }
  return false;
}

PoolUses find_uses(const RankProgram& program, const ModelInfo& model, Pool pool) {
  PoolUses uses;
  std::map<std::pair<int, int>, int> numbers;  // by unit and part
  std::vector<Resources> all;
  for (const Action& action : program.actions) {
    const Resources& declared = all.emplace_back(resources_of(action, model));
    std::vector<int>& needed = uses.of_action.emplace_back();
    std::vector<int>& changed = uses.changed.emplace_back();
    for (const auto* list : {&declared.reads, &declared.writes}) {
      for (const Resource& resource : *list) {
        const auto item = item_of(resource, program);
        if (!item || pool_of(*item) != pool) continue;
        const auto [number, is_new] = numbers.try_emplace({item->unit, item->part}, static_cast<int>(uses.items.size()));
        if (is_new) uses.items.push_back(*item);
        if (std::ranges::count(needed, number->second) == 0) needed.push_back(number->second);
        if (list == &declared.writes) changed.push_back(number->second);
      }
    }
  }
  uses.waits = find_waits(all, program.actions);
  uses.earliest = first_place(program, pool);
  return uses;
}

}  // namespace zt::offload
