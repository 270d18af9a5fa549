#include "zt/plan/slots.h"

#include <algorithm>
#include <limits>
#include <map>
#include <numeric>

#include "zt/base/tensor.h"

namespace zt {

namespace {

// An interval of actions of one program, by index, both ends included.
struct Interval {
  int program, begin, end;
  bool outlasts = true;  // work on the buffer is still in flight during the next actions
};

// The intervals during which one buffer is held. They do not overlap.
class Held {
 public:
  bool is_free(const std::vector<Interval>& wanted) const {
    return std::none_of(wanted.begin(), wanted.end(), [&](const Interval& x) {
      const auto next = ends_.upper_bound({x.program, x.end});
      if (next == ends_.begin()) return false;
      const auto& [begin, end] = *std::prev(next);
      return begin.first == x.program && end >= x.begin;
    });
  }
  void add(const std::vector<Interval>& taken) {
    for (const Interval& interval : taken) ends_[{interval.program, interval.begin}] = interval.end;
  }

 private:
  std::map<std::pair<int, int>, int> ends_;  // by program and begin
};

// Goes through the units in the order in which they first hold a buffer. Each takes the free slot that fits best.
class Assignment {
 public:
  Assignment(const std::vector<std::vector<Interval>>& held, std::vector<int64_t> sizes) : held_(held), sizes_(std::move(sizes)) {
    slots_.of_unit.assign(held.size(), -1);
  }

  Slots make() {
    std::vector<size_t> order;
    for (size_t unit = 0; unit < held_.size(); ++unit) {
      if (!held_[unit].empty()) order.push_back(unit);
    }
    const auto first = [&](size_t unit) { return std::pair(held_[unit].front().program, held_[unit].front().begin); };
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return first(a) < first(b); });
    for (const size_t unit : order) assign(unit);
    return std::move(slots_);
  }

 private:
  void assign(size_t unit) {
    const int64_t size = sizes_[unit];
    int best = -1;
    int64_t least_growth = std::numeric_limits<int64_t>::max(), least_room = least_growth;
    for (int slot = 0; slot < static_cast<int>(slots_.sizes.size()); ++slot) {
      if (!holders_[slot].is_free(held_[unit])) continue;
      const int64_t growth = std::max<int64_t>(0, size - slots_.sizes[slot]), room = slots_.sizes[slot] - size;
      if (std::pair(growth, room) >= std::pair(least_growth, least_room)) continue;
      best = slot;
      least_growth = growth;
      least_room = room;
    }
    if (best < 0) {
      best = static_cast<int>(slots_.sizes.size());
      slots_.sizes.push_back(0);
      holders_.emplace_back();
    }
    holders_[best].add(held_[unit]);
    slots_.sizes[best] = std::max(slots_.sizes[best], size);
    slots_.of_unit[unit] = best;
  }

  const std::vector<std::vector<Interval>>& held_;
  std::vector<int64_t> sizes_;  // elements by unit
  std::vector<Held> holders_;   // by slot
  Slots slots_;
};

std::vector<int64_t> padded_sizes(const std::vector<Unit>& units) {
  std::vector<int64_t> sizes;
  for (const Unit& unit : units) sizes.push_back(unit.layout.padded());
  return sizes;
}

bool writes_gradient(const Resources& resources, int unit) {
  return std::any_of(resources.writes.begin(), resources.writes.end(), [&](const Resource& resource) {
    return resource.type == resource::grad && (unit < 0 || resource.index == unit);
  });
}

}  // namespace

int64_t Slots::total() const {
  return std::accumulate(sizes.begin(), sizes.end(), int64_t{0});
}

Resource SharedSlots::buffer_of(const Resource& resource) const {
  const auto slots = by_type.find(resource.type);
  if (slots == by_type.end()) return resource;
  const std::vector<int>& of_unit = slots->second.of_unit;
  const int slot = of_unit[resource.index];
  return slot < 0 ? resource : Resource{resource.type, static_cast<int32_t>(of_unit.size()) + slot};
}

Slots parameter_slots(std::span<const RankProgram* const> programs, const ModelInfo& model, const std::vector<Unit>& units) {
  std::vector<std::vector<Interval>> held(units.size());
  const auto is_slotted = [](const RankProgram& program, const Resource& resource) {
    return resource.type == resource::param && program.units[resource.index].params == Residence::sharded;
  };
  for (int number = 0; number < static_cast<int>(programs.size()); ++number) {
    const RankProgram& program = *programs[static_cast<size_t>(number)];
    for (int index = 0; index < static_cast<int>(program.actions.size()); ++index) {
      const Action& action = program.actions[index];
      if (role_of(action) != Role::residency) continue;
      const Resources resources = resources_of(action, model);
      for (const Resource& taken : resources.writes) {
        if (is_slotted(program, taken)) held[taken.index].push_back({number, index, index});
      }
      for (const Resource& freed : resources.frees) {
        if (is_slotted(program, freed) && !held[freed.index].empty()) held[freed.index].back().end = index;
      }
    }
  }
  // A slot counts in plain elements, also where a unit of packed parameters lies in it.
  std::vector<int64_t> sizes = padded_sizes(units);
  const int64_t bytes = size_of(programs.front()->precision.params);
  for (size_t unit = 0; unit < units.size(); ++unit) {
    if (model.units[unit].is_packed) sizes[unit] = (sizes[unit] + bytes - 1) / bytes;
  }
  return Assignment(held, std::move(sizes)).make();
}

Slots gradient_slots(const RankProgram& training, const ModelInfo& model, const std::vector<Unit>& units) {
  const int n = static_cast<int>(training.actions.size());
  std::vector<std::vector<Interval>> held(units.size());
  std::vector<int> backwards;  // actions other than reductions that write a gradient
  std::vector<char> is_open(units.size(), 0);
  for (int index = 0; index < n; ++index) {
    const Action& action = training.actions[index];
    const Resources resources = resources_of(action, model);
    const bool reduces = role_of(action) == Role::reduce;
    if (reduces) {
      for (const int unit : action.units()) is_open[unit] = training.units[unit].grads == Residence::sharded ? 0 : is_open[unit];
    } else if (writes_gradient(resources, -1)) {
      backwards.push_back(index);
    }
    for (size_t unit = 0; unit < units.size(); ++unit) {
      const UnitPlan& plan = training.units[unit];
      if (plan.grads != Residence::sharded && !plan.grads_home.is_elsewhere()) continue;
      const bool takes_sum = action.flag("summed") && action.target == static_cast<int>(unit);  // EVICT
      if (takes_sum && !held[unit].empty()) {
        held[unit].back() = {0, held[unit].back().begin, index, false};
        is_open[unit] = 0;
      }
      if (!writes_gradient(resources, static_cast<int>(unit))) continue;
      if (!reduces && !is_open[unit]) {
        held[unit].push_back({0, index, index});
        is_open[unit] = 1;
      }
      if (held[unit].empty()) continue;
      held[unit].back().end = index;
      held[unit].back().outlasts = !action.flag("wait");
    }
  }
  for (auto& intervals : held) {
    for (Interval& interval : intervals) {
      if (!interval.outlasts) continue;
      const auto next = std::upper_bound(backwards.begin(), backwards.end(), interval.end);
      if (next != backwards.end()) interval.end = *next;
    }
  }
  return Assignment(held, padded_sizes(units)).make();
}

Slots staging_slots(const RankProgram& training, const std::vector<int64_t>& sizes) {
  std::vector<std::vector<Interval>> held(sizes.size());
  for (int index = 0; index < static_cast<int>(training.actions.size()); ++index) {
    const Action& action = training.actions[static_cast<size_t>(index)];
    if (action.kind == Kinds::get().gather_tensors) held[static_cast<size_t>(action.target)].push_back({0, index, index});
    if (action.kind == Kinds::get().scatter_tensors && !held[static_cast<size_t>(action.target)].empty())
      held[static_cast<size_t>(action.target)].back().end = index;
  }
  return Assignment(held, sizes).make();
}

}  // namespace zt
