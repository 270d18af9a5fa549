#include "verify.h"

namespace zt::verifier {

namespace {

class UpdateCheck : RankCheck {
 public:
  UpdateCheck(const Subject& subject, Findings& findings) : RankCheck(subject, findings), units_(subject.model.units.size()) {}

  void run() {
    for (int step = 0; step < subject_.size(); ++step) {
      const KindId id = subject_.action(step).kind;
      if (id == Kinds::get().norm) has_norm_ = true;
      if (id == Kinds::get().step) update(step);
      if (id == Kinds::get().gather_tensors) gather(step);
      if (id == Kinds::get().scatter_tensors) scatter(step);
    }
    if (subject_.is_training()) check_complete();
  }

 private:
  struct Updates {
    int last = -1;      // index of the last slice's action; -1: it has not come yet
    int64_t parts = 0;  // number of slices, from the first slice on
    int64_t parts_done = 0;
    int gathered = -1, scattered = -1;  // indices of GATHER_TENSORS and SCATTER_TENSORS
  };

  void update(int step) {
    const Action& action = subject_.action(step);
    const int unit = action.target;
    Updates& state = units_[unit];
    if (!subject_.model.units[unit].trainable) return say(step, "{} is frozen: remove it", subject_.unit(unit));
    if (state.last >= 0) return say(step, "it repeats {}: a unit is updated once, remove one", subject_.at(state.last));
    if (action.flag("staged") && state.gathered < 0)
      return say(step, "its tensors are not gathered: put GATHER_TENSORS {} before, or leave staged out", unit);
    if (!action.flag("staged") && state.gathered >= 0)
      return say(step, "{} comes before it: give staged=true", subject_.at(state.gathered));
    const int64_t parts = action.number("parts", 1);
    if (state.parts == 0) state.parts = parts;
    if (state.parts != parts)
      return say(step, "parts={}, but STEP {} was begun with {} slices: use the same number in all of them", parts, unit,
                 state.parts);
    if (action.number("part", 0) != state.parts_done)
      return say(step, "part={} of STEP {} where part {} is due: slices are updated in order, each once",
                 action.number("part", 0), unit, state.parts_done);
    if (++state.parts_done == parts) state.last = step;
    if (!has_norm_) say(step, "no NORM comes before it: clipping and the check for non-finite gradients need it, put NORM first");
  }

  void gather(int step) {
    Updates& state = units_[subject_.action(step).target];
    if (state.gathered >= 0) return say(step, "it repeats {}: remove one", subject_.at(state.gathered));
    state.gathered = step;
    if (!has_norm_) say(step, "no NORM comes before it: put NORM first, it finds out whether the step updates anything");
  }

  void scatter(int step) {
    const int unit = subject_.action(step).target;
    Updates& state = units_[unit];
    if (state.scattered >= 0) return say(step, "it repeats {}: remove one", subject_.at(state.scattered));
    state.scattered = step;
    if (state.last < 0) say(step, "STEP {} has not come before it: the new values come from there", unit);
  }

  void check_complete() {
    for (int unit = 0; unit < static_cast<int>(units_.size()); ++unit) {
      const Updates& state = units_[unit];
      if (state.gathered >= 0 && state.scattered < 0)
        say(state.gathered, "SCATTER_TENSORS {} is missing: the ranks that own the tensors would keep their new values", unit);
      if (!subject_.is_trained(unit) || state.last >= 0) continue;
      say(-1, "STEP {} is missing: {} would never be updated", unit, subject_.unit(unit));
    }
  }

  std::vector<Updates> units_;
  bool has_norm_ = false;  // before the present action
};

}  // namespace

void check_updates(const Subject& subject, Findings& findings) {
  UpdateCheck(subject, findings).run();
}

}  // namespace zt::verifier
