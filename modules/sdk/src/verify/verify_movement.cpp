#include <map>

#include "verify.h"

namespace zt::verifier {

namespace {

// Follows the slices of data that do not always lie in memory. At the start and at the end of a program they are at home: other
// programs use the same places in memory, and between steps the data are read from there.
class MovementCheck : RankCheck {
 public:
  MovementCheck(const Subject& subject, Findings& findings) : RankCheck(subject, findings), sums_(subject.model.units.size()) {
    for (auto& of_data : places_) of_data.resize(subject.model.units.size());
    for (size_t unit = 0; unit < subject.model.units.size(); ++unit) {
      for (auto& of_data : places_) of_data[unit].resize(static_cast<size_t>(subject.program.units[unit].slices));
    }
  }

  void run() {
    for (int step = 0; step < subject_.size(); ++step) {
      const KindId id = subject_.action(step).kind;
      if (id == Kinds::get().fetch) fetch(step);
      else if (id == Kinds::get().evict) evict(step);
      else use(step);
      if (id == Kinds::get().norm && subject_.is_training()) check_squares(step);
    }
    check_end();
  }

 private:
  // The place of a slice in memory, and the action that has brought it; -1 while it is at home.
  struct Place {
    int slot = -1, brought = -1;
    int changed = -1;        // the action that has changed it since
    int taken = -1;          // the action that has taken it home last
    bool is_part = false;    // brought by itself, not with all slices of the unit
    bool has_values = true;  // false: its FETCH has read nothing, and nothing has written it yet
    bool is_on_host = false;
  };
  // The slices that an action moves.
  struct Moved {
    UnitData data;
    int unit, first, last;
    bool is_part, is_on_host;
  };

  const UnitPlan& plan(int unit) const { return subject_.program.units[static_cast<size_t>(unit)]; }
  Place& place(UnitData data, int unit, int part) {
    return places_[static_cast<size_t>(data)][static_cast<size_t>(unit)][static_cast<size_t>(part)];
  }
  bool is_elsewhere(UnitData data, int unit) const {
    return plan(unit).home(data).is_elsewhere() &&
           (data == UnitData::params ? subject_.program.units[static_cast<size_t>(unit)].held : subject_.is_trained(unit));
  }
  std::string name(UnitData data, int unit) const { return fmt::format("the {} of {}", word_of(data), subject_.unit(unit)); }

  // Returns what the action moves, unless it cannot move that.
  std::optional<Moved> moved_by(int step) {
    const Action& action = subject_.action(step);
    const int unit = action.target, part = static_cast<int>(action.number("part", 0)), slices = plan(unit).slices;
    const int64_t parts = action.number("parts", 1);
    const auto data = action.unit_data();
    const bool is_part = parts == slices;
    if (!is_elsewhere(data, unit)) {
      say(step, "it moves {}, which no home holds: remove it", name(data, unit));
    } else if (const Home& home = plan(unit).home(data); action.attr("home") != word_of(home.tier)) {
      say(step, "{} lie in home={}", name(data, unit), word_of(home.tier));
    } else if (!is_part && (data == UnitData::state || parts != 1)) {
      say(step, "parts={}, but {} is cut into {} slices: give parts={}", parts, subject_.unit(unit), slices, slices);
    } else if (is_part && part < home.stays) {
      say(step, "the first {} slices of {} stay in memory: remove it", home.stays, name(data, unit));
    } else if (action.is_in_host_memory() && !is_part) {
      say(step, "memory=host is for slices, which updates use, and layers use all of it on the device: leave memory out");
    } else {
      return Moved{data, unit, is_part ? part : 0, is_part ? part : slices - 1, is_part, action.is_in_host_memory()};
    }
    return std::nullopt;
  }

  void fetch(int step) {
    const auto moved = moved_by(step);
    if (!moved) return;
    const int slot = static_cast<int>(subject_.action(step).number("slot", 0));
    for (int part = moved->first; part <= moved->last; ++part) {
      const Place& known = place(moved->data, moved->unit, part);
      if (known.slot >= 0) return say(step, "{} has brought slice {} already: remove it", subject_.at(known.brought), part);
    }
    if (const auto taken = slots_.find(slot); taken != slots_.end())
      return say(step, "slot {} holds what {} has brought: give another slot, or put the EVICT of that before", slot,
                 subject_.at(taken->second));
    for (int part = moved->first; part <= moved->last; ++part)
      place(moved->data, moved->unit, part) = {.slot = slot,
                                               .brought = step,
                                               .is_part = moved->is_part,
                                               .has_values = !subject_.action(step).flag("fresh"),
                                               .is_on_host = moved->is_on_host};
    slots_[slot] = step;
  }

  void evict(int step) {
    const auto moved = moved_by(step);
    if (!moved) return;
    const Action& action = subject_.action(step);
    if (action.attrs.contains("squares")) add_squares(step);
    if (action.flag("summed")) return take_sum(step);
    for (int part = moved->first; part <= moved->last; ++part) {
      Place& mine = place(moved->data, moved->unit, part);
      if (mine.slot < 0) return say(step, "slice {} is not in memory: put its FETCH before, or remove this", part);
      if (mine.is_part != moved->is_part)
        say(step, "{} has brought {}: take back the same", subject_.at(mine.brought), mine.is_part ? "a slice" : "all slices");
      else if (mine.is_on_host != moved->is_on_host)
        say(step, "{} has brought it to the memory of the {}: give memory as there", subject_.at(mine.brought),
            mine.is_on_host ? "host" : "device");
      else if (action.number("slot", 0) != mine.slot)
        say(step, "{} has brought it to slot {}: give slot={}", subject_.at(mine.brought), mine.slot, mine.slot);
      else if (!mine.has_values && (action.attrs.contains("squares") || !action.flag("unchanged")))
        say(step, "{} has read nothing (fresh=true), and nothing has written it since: leave fresh out",
            subject_.at(mine.brought));
      else if (action.flag("unchanged") && mine.changed >= 0)
        say(step, "{} has changed it: leave unchanged out, or the change is lost", subject_.at(mine.changed));
      slots_.erase(mine.slot);
      mine = {.taken = step};
    }
  }

  // A gradient that is summed in the unit's own buffer leaves once, by way of a slot.
  void take_sum(int step) {
    const Action& action = subject_.action(step);
    Sum& sum = sums_[static_cast<size_t>(action.target)];
    if (plan(action.target).grads == Residence::sharded)
      return say(step, "the sum of the gradient of {} is in the slot of a FETCH: leave summed out", subject_.unit(action.target));
    if (action.flag("unchanged")) return say(step, "no home has the sum yet: leave unchanged out, or the gradient is lost");
    if (sum.taken >= 0) return say(step, "{} has taken the gradient already: remove it", subject_.at(sum.taken));
    if (const auto taken = slots_.find(static_cast<int>(action.number("slot", 0))); taken != slots_.end())
      return say(step, "its slot holds what {} has brought: give another slot", subject_.at(taken->second));
    sum.taken = step;
    for (Place& each : places_[static_cast<size_t>(UnitData::grads)][static_cast<size_t>(action.target)]) each = {.taken = step};
  }

  void add_squares(int step) {
    Sum& sum = sums_[static_cast<size_t>(subject_.action(step).target)];
    if (sum.squared >= 0) return say(step, "{} has added the squares already: leave squares out", subject_.at(sum.squared));
    sum.squared = step;
  }

  // NORM adds the squares of gradients that have left.
  void check_squares(int step) {
    for (int unit = 0; unit < static_cast<int>(sums_.size()); ++unit) {
      const Sum& sum = sums_[static_cast<size_t>(unit)];
      if (!is_elsewhere(UnitData::grads, unit)) continue;
      const std::vector<std::string> axes = subject_.action(step).axes();
      if (sum.squared < 0)
        say(step, "the gradient of {} has left, and its squares are missing: give its last EVICT before squares={}",
            subject_.unit(unit), as_list(axes));
      else if (subject_.action(sum.squared).norm_axes() != axes)
        say(sum.squared, "the axes of {} are others: give squares={}", subject_.at(step), as_list(axes));
    }
    has_norm_ = true;
  }

  void use(int step) {
    const Resources& declared = subject_.resources[static_cast<size_t>(step)];
    for (const auto* list : {&declared.reads, &declared.writes, &declared.frees}) {
      for (const Resource& resource : *list) {
        const bool adds = resource.type == resource::grad && list == &declared.writes;
        if (adds && !check_open(step, resource.index)) return;
        const auto data = unit_data_of(resource, subject_.program.precision);
        if (!data || !is_elsewhere(*data, resource.index)) continue;
        if (!check_use(step, *data, resource, list != &declared.reads)) return;
      }
    }
  }

  // Returns whether the gradient may still change: its squares are not in the norm yet.
  bool check_open(int step, int unit) {
    const Sum& sum = sums_[static_cast<size_t>(unit)];
    const int cause = std::max(sum.squared, sum.taken);
    if (has_norm_ || cause < 0 || !is_elsewhere(UnitData::grads, unit)) return true;
    say(step, "it changes the gradient of {}, which {} has taken: put it before", subject_.unit(unit), subject_.at(cause));
    return false;
  }

  // Returns whether what the action touches is in memory.
  bool check_use(int step, UnitData data, const Resource& touched, bool is_change) {
    const int unit = touched.index, slices = plan(unit).slices;
    const bool is_step = subject_.action(step).kind == Kinds::get().step;
    const bool works_on_host = is_step && subject_.action(step).is_in_host_memory();
    const Sum& sum = sums_[static_cast<size_t>(unit)];
    const bool is_in_own_buffer = plan(unit).grads != Residence::sharded && sum.taken < 0;
    if (data == UnitData::grads && is_in_own_buffer) return true;
    if (data == UnitData::grads && sum.taken >= 0 && !is_step) {
      say(step, "it works with the gradient of {}, which {} has taken: put it before", subject_.unit(unit),
          subject_.at(sum.taken));
      return false;
    }
    const bool is_part = touched.parts == slices && (is_step || slices > 1);
    if (!is_part && (data == UnitData::state || is_step || touched.parts != 1)) {
      if (is_step)
        say(step, "{} lie elsewhere in {} slices: update the unit in slices, with parts={}", name(data, unit), slices, slices);
      else
        say(step, "it touches the {} of {} as a whole, of which slices lie elsewhere: leave them in the device's memory",
            type_of(touched.type).name, subject_.unit(unit));
      return false;
    }
    for (int part = is_part ? touched.part : 0; part <= (is_part ? touched.part : slices - 1); ++part) {
      Place& mine = place(data, unit, part);
      if (part < plan(unit).home(data).stays) continue;
      if (mine.slot < 0) {
        const std::string where = mine.taken < 0 ? fmt::format("lies in home={}", word_of(plan(unit).home(data).tier))
                                                 : fmt::format("{} has taken away", subject_.at(mine.taken));
        say(step, "it uses slice {} of {}, which {}: put a FETCH {} before", part, name(data, unit), where, unit);
        return false;
      }
      if (mine.is_on_host != works_on_host) {
        say(step, "it works in the memory of the {}, and {} has brought slice {} of {} to that of the {}: give memory as there",
            works_on_host ? "host" : "device", subject_.at(mine.brought), part, name(data, unit),
            mine.is_on_host ? "host" : "device");
        return false;
      }
      if (slices > 1 && mine.is_part != is_part) {
        say(step, "it uses {} of {}, but {} has brought {}", is_part ? "a slice" : "all slices", name(data, unit),
            subject_.at(mine.brought), mine.is_part ? "a slice" : "all slices");
        return false;
      }
      if (!mine.has_values && !writes_all(step)) {
        say(step, "{} has read nothing (fresh=true), and this does not write all of it: leave fresh out",
            subject_.at(mine.brought));
        return false;
      }
      if (is_change) mine.changed = step;
      mine.has_values = true;
    }
    return true;
  }

  // Returns whether the action overwrites the sum of a gradient.
  bool writes_all(int step) const {
    const Action& action = subject_.action(step);
    if (action.kind != Kinds::get().reduce_grad) return false;
    return action.gradient_part() == GradientPart::whole || action.gradient_part() == GradientPart::first;
  }

  void check_end() {
    for (const auto& [slot, brought] : slots_)
      say(brought, "it leaves data in slot {} at the end, and their changes would be lost: add an EVICT", slot);
  }

  std::array<std::vector<std::vector<Place>>, kAllData.size()> places_;  // by data, unit and slice
  std::map<int, int> slots_;                                             // the FETCH that has taken a slot
  // Of the gradient of a unit: the EVICTs that have taken the sum from the unit's own buffer, and added its squares.
  struct Sum {
    int taken = -1, squared = -1;
  };
  std::vector<Sum> sums_;  // by unit
  bool has_norm_ = false;
};

// An update that works in the host's memory finds all optimizer state there.
void check_steps_on_host(const Subject& subject, Findings& findings) {
  for (int step = 0; step < subject.size(); ++step) {
    const Action& action = subject.action(step);
    if (action.kind != Kinds::get().step || !action.is_in_host_memory()) continue;
    const Home& home = subject.program.units[static_cast<size_t>(action.target)].state_home;
    if (!home.is_elsewhere() || action.number("part", 0) < home.stays)
      refuse(subject, findings, step, "memory=host, but this optimizer state stays in the device's memory: leave memory out");
  }
}

}  // namespace

void check_movement(const Subject& subject, Findings& findings) {
  check_steps_on_host(subject, findings);
  MovementCheck(subject, findings).run();
}

}  // namespace zt::verifier
