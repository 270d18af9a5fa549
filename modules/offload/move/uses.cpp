#include "uses.h"

#include <algorithm>
#include <map>
#include <optional>

namespace zt::offload {

namespace {

// Returns what an action needs that touches the resource. What touches slices that are not those of the unit is refused by the
// verifier.
std::optional<Cargo> item_of(const Action& action, const Resource& resource, const RankProgram& program) {
  const auto data = unit_data_of(resource, program.precision);
  if (!data || (*data == UnitData::grads && program.mode != Mode::train)) return std::nullopt;  // others have no gradients
  const UnitPlan& plan = program.units[static_cast<size_t>(resource.index)];
  const Home& home = plan.home(*data);
  if (!plan.held || !home.is_elsewhere()) return std::nullopt;
  const bool needs_all = *data != UnitData::state && resource.parts == 1 && action.kind != Kinds::get().step;
  if (needs_all) return Cargo{*data, resource.index, -1};
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

// Parameters are needed by forwards, from COUNT on; a step by hand begins after it. What updates need is needed after the
// forwards.
int first_place(const RankProgram& program, Pool pool) {
  int place = 0;
  for (int i = 0; i < static_cast<int>(program.actions.size()); ++i) {
    const KindId kind = program.actions[static_cast<size_t>(i)].kind;
    const bool is_for_layers = pool == Pool::units || pool == Pool::sums;
    if (kind == Kinds::get().count || (!is_for_layers && kind == Kinds::get().forward)) place = i + 1;
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

bool PoolUses::may_stay(int item, int from, int to) const {
  const Cargo& cargo = items[static_cast<size_t>(item)];
  if (!cargo.is_whole()) return true;
  const auto is_between = [&](int action) { return from < action && action < to; };
  return !is_between(norm) && std::ranges::none_of(updates[static_cast<size_t>(cargo.unit)], is_between);
}

Pool Cargo::pool() const {
  static constexpr std::array kOfSlices{Pool::state, Pool::grads, Pool::params}, kOfWholes{Pool::state, Pool::sums, Pool::units};
  return (is_whole() ? kOfWholes : kOfSlices)[static_cast<size_t>(data)];
}

bool is_summed_in_own_buffer(const Cargo& cargo, const RankProgram& program) {
  return cargo.pool() == Pool::sums && program.units[static_cast<size_t>(cargo.unit)].grads != Residence::sharded;
}

namespace {

// Gives the gradients that are summed in their units' own buffers one use each: where they leave.
void add_sums(const RankProgram& program, const std::vector<Resources>& declared, PoolUses& uses) {
  const auto norm = std::ranges::find(program.actions, Kinds::get().norm, &Action::kind) - program.actions.begin();
  for (size_t unit = 0; unit < program.units.size(); ++unit) {
    const UnitPlan& plan = program.units[unit];
    if (!plan.held || !plan.grads_home.is_elsewhere() || plan.grads == Residence::sharded) continue;
    const auto is_gradient = [&](const Resource& resource) {
      return resource.type == resource::grad && resource.index == static_cast<int>(unit);
    };
    for (auto i = norm; i-- > 0;) {
      const Resources& resources = declared[static_cast<size_t>(i)];
      if (std::ranges::none_of(resources.reads, is_gradient) && std::ranges::none_of(resources.writes, is_gradient)) continue;
      uses.of_action[static_cast<size_t>(i)].push_back(static_cast<int>(uses.items.size()));
      uses.changed[static_cast<size_t>(i)].push_back(static_cast<int>(uses.items.size()));
      uses.items.push_back({UnitData::grads, static_cast<int>(unit), -1});
      break;
    }
  }
}

}  // namespace

std::pair<int, int> PoolUses::most() const {
  const auto found = std::ranges::max_element(of_action, {}, &std::vector<int>::size);
  if (found == of_action.end() || found->empty()) return {-1, 0};
  return {static_cast<int>(found - of_action.begin()), static_cast<int>(found->size())};
}

PoolUses find_uses(const RankProgram& program, const ModelInfo& model, Pool pool) {
  PoolUses uses;
  uses.updates.resize(program.units.size());
  std::map<std::pair<int, int>, int> numbers;  // by unit and part
  std::vector<Resources> all;
  for (const Action& action : program.actions) {
    const int index = static_cast<int>(all.size());
    if (action.kind == Kinds::get().norm) uses.norm = index;
    if (action.kind == Kinds::get().step) uses.updates[static_cast<size_t>(action.target)].push_back(index);
    const Resources& declared = all.emplace_back(resources_of(action, model));
    std::vector<int>& needed = uses.of_action.emplace_back();
    std::vector<int>& changed = uses.changed.emplace_back();
    for (const auto* list : {&declared.reads, &declared.writes}) {
      for (const Resource& resource : *list) {
        const auto item = item_of(action, resource, program);
        if (!item || item->pool() != pool || is_summed_in_own_buffer(*item, program)) continue;
        const auto [number, is_new] = numbers.try_emplace({item->unit, item->part}, static_cast<int>(uses.items.size()));
        if (is_new) uses.items.push_back(*item);
        if (std::ranges::count(needed, number->second) == 0) needed.push_back(number->second);
        if (list == &declared.writes) changed.push_back(number->second);
      }
    }
  }
  if (pool == Pool::sums && program.mode == Mode::train) add_sums(program, all, uses);
  uses.waits = find_waits(all, program.actions);
  uses.earliest = first_place(program, pool);
  return uses;
}

}  // namespace zt::offload
