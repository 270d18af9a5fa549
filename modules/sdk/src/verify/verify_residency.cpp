#include "verify.h"

namespace zt::verifier {

namespace {

enum class Presence : uint8_t { current, stale, freed };

// Checks when full parameters are present and current. At the start and at the end of a program the parameters of a unit must be
// freed if they are sharded, and otherwise present and current: the next program relies on it.
class ResidencyCheck : RankCheck {
 public:
  ResidencyCheck(const Subject& subject, Findings& findings) : RankCheck(subject, findings), units_(subject.model.units.size()) {
    for (size_t unit = 0; unit < units_.size(); ++unit) {
      if (subject.has_sharded_params(static_cast<int>(unit))) units_[unit].presence = Presence::freed;
    }
  }

  void run() {
    for (int step = 0; step < subject_.size(); ++step) {
      const Role role = role_of(subject_.action(step));
      if (role == Role::movement) continue;  // it changes no value
      if (role != Role::residency) {
        use(step);
        continue;
      }
      const auto gathered = units_in(subject_.resources[step].writes), freed = units_in(subject_.resources[step].frees);
      if (!gathered.empty()) unshard(step, gathered);
      if (!freed.empty()) reshard(step, freed);
    }
    for (int unit = 0; unit < static_cast<int>(units_.size()); ++unit) check_end(unit);
  }

 private:
  struct UnitState {
    Presence presence = Presence::current;
    int cause = -1;  // the action after which it is so; -1: the start
  };

  void check_end(int unit) {
    if (!subject_.program.units[unit].held) return;
    const UnitState& state = units_[unit];
    if (subject_.has_sharded_params(unit)) {
      if (state.presence == Presence::freed) return;
      say(state.cause, "it leaves the parameters of {} gathered at the end, in a buffer that other units use: add RESHARD {}",
          subject_.unit(unit), unit);
    } else if (state.presence != Presence::current) {
      say(state.cause, "it leaves the parameters of {} {} at the end, and the next program needs them: add UNSHARD {}",
          subject_.unit(unit), state_of(state), unit);
    }
  }

  static const char* state_of(const UnitState& state) { return state.presence == Presence::freed ? "freed" : "out of date"; }

  // Returns the units whose full parameters are among the resources.
  static std::vector<int> units_in(const std::vector<Resource>& resources) {
    std::vector<int> units;
    for (const Resource& resource : resources) {
      if (resource.type == resource::param) units.push_back(resource.index);
    }
    return units;
  }

  void unshard(int step, const std::vector<int>& units) {
    const Action& action = subject_.action(step);
    for (const int unit : units) {
      const auto& axes = subject_.program.units[unit].shard_axes;
      if (!subject_.is_sharded(unit)) {
        say(step, "{} is not sharded, so there is nothing to gather: remove it", subject_.unit(unit));
      } else if (action.axes() != axes) {
        say(step, "{} is sharded along {}: give axes={}", subject_.unit(unit), joined(axes), as_list(axes));
      } else if (units_[unit].presence == Presence::current) {
        say(step, "the parameters of {} are present and current already: remove it", subject_.unit(unit));
      }
      units_[unit] = {Presence::current, step};
      if (subject_.has_sharded_params(unit)) live_ += subject_.model.units[unit].numel;
    }
    const int64_t bound = subject_.program.max_live;
    if (bound > 0 && live_ > bound) {
      say(step, "{} elements of sharded parameters are whole after it, and max_live is {}: put a RESHARD before", live_, bound);
    }
  }

  void reshard(int step, const std::vector<int>& units) {
    for (const int unit : units) {
      if (!subject_.is_sharded(unit)) {
        say(step, "{} is not sharded: nothing could bring its parameters back, remove it", subject_.unit(unit));
      } else if (units_[unit].presence == Presence::freed) {
        const int cause = units_[unit].cause;
        if (cause < 0) say(step, "{} is not gathered: remove it", subject_.unit(unit));
        else say(step, "{} has freed {} already: remove it", subject_.at(cause), subject_.unit(unit));
      }
      if (subject_.has_sharded_params(unit) && units_[unit].presence != Presence::freed)
        live_ -= subject_.model.units[unit].numel;
      units_[unit] = {Presence::freed, step};
    }
  }

  void use(int step) {
    const Resources& declared = subject_.resources[step];
    for (const Resource& read : declared.reads) {
      if (read.type == resource::param) check_read(step, read.index);
    }
    for (const Resource& write : declared.writes) {
      if (write.type == resource::param || write.type == resource::master) check_write(step, write);
    }
    // If the state is sharded, a change of the owned part makes the full parameters out of date.
    for (const Resource& write : declared.writes) {
      if (write.type != resource::master || !subject_.is_sharded(write.index)) continue;
      if (units_[write.index].presence == Presence::current) units_[write.index] = {Presence::stale, step};
    }
    if (subject_.action(step).kind == Kinds::get().norm) norm_ = step;
  }

  void check_read(int step, int unit) {
    const UnitState& state = units_[unit];
    if (state.presence != Presence::current && state.cause < 0) {
      say(step, "it uses the parameters of {}, which are sharded: put UNSHARD {} before", subject_.unit(unit), unit);
    } else if (state.presence != Presence::current) {
      say(step, "it uses the parameters of {}, which {} has left {}: put UNSHARD {} between", subject_.unit(unit),
          subject_.at(state.cause), state_of(state), unit);
    } else if (is_node_shared(unit) && state.cause < norm_ && subject_.model.units[unit].trainable) {
      say(step,
          "it uses the parameters of {}, which ranks share and others may be updating since {}: put it before that, or after "
          "UNSHARD {}",
          subject_.unit(unit), subject_.at(norm_), unit);
    }
  }

  // Only STEP may write parameters freely: it writes all their copies.
  void check_write(int step, const Resource& write) {
    if (role_of(subject_.action(step)) == Role::update) return;
    const int unit = write.index;
    if (is_node_shared(unit)) {
      say(step, "it writes the parameters of {}, which other ranks read in the same memory: give node_shared = false",
          subject_.unit(unit));
      return;
    }
    const bool is_copy = subject_.has_sharded_params(unit) || subject_.program.precision.is_mixed();
    const auto& writes = subject_.resources[step].writes;
    if (write.type != resource::param || !is_copy) return;
    if (std::find(writes.begin(), writes.end(), Resource{resource::master, unit}) != writes.end()) return;
    say(step, "it writes the parameters of {}, which are overwritten from the parts that ranks own: write master",
        subject_.unit(unit));
  }

  bool is_node_shared(int unit) const { return subject_.program.units[unit].params == Residence::node_shared; }

  std::vector<UnitState> units_;
  int64_t live_ = 0;  // elements of sharded parameters that are whole
  int norm_ = -1;     // the NORM, after which ranks update the parts that they own; -1: not yet
};

}  // namespace

void check_residency(const Subject& subject, Findings& findings) {
  ResidencyCheck(subject, findings).run();
}

}  // namespace zt::verifier
