#include <algorithm>
#include <set>

#include "verify.h"

namespace zt::verifier {

namespace {

// Returns the axes along which ranks run different positions, hold different boxes of a parameter, or share the work of layers.
std::set<std::string> divided_axes(const Subject& subject) {
  std::set<std::string> axes(subject.program.split_axes.begin(), subject.program.split_axes.end());
  for (const ParamInfo& param : subject.model.params) {
    for (const std::string& axis : param.cut_axes()) axes.insert(axis);
  }
  for (const std::string& axis : subject.model.inner_axes) {
    if (subject.mesh.has(axis)) axes.insert(axis);
  }
  return axes;
}

bool sees_other_data(const Subject& subject, int unit, const std::string& axis) {
  return std::ranges::any_of(subject.model.units[unit].params, [&](int index) {
    const ParamInfo& param = subject.model.params[index];
    return param.trainable && placement_on(param.placements, axis) == Placement::replicated_other_data;
  });
}

// Returns the axes of several ranks along which a trained parameter of the unit sees other data, in the mesh's order.
std::vector<std::string> data_axes(const Subject& subject, int unit) {
  std::vector<std::string> axes;
  for (const AxisSize& axis : subject.mesh.axes()) {
    if (axis.size > 1 && sees_other_data(subject, unit, axis.name)) axes.push_back(axis.name);
  }
  return axes;
}

class GradientCheck : RankCheck {
 public:
  GradientCheck(const Subject& subject, Findings& findings) : RankCheck(subject, findings), units_(subject.model.units.size()) {
    for (int step = 0; step < subject.size(); ++step) {
      const Action& action = subject.action(step);
      const bool is_reduction = action.kind == Kinds::get().reduce_grad;
      if (!is_reduction && action.kind != Kinds::get().replicate_grad) continue;
      for (const auto& axis : action.axes()) reduced_axes_.insert(axis);
      for (const int unit : action.units()) {
        if (is_reduction) units_[unit].last_reduction = step;
      }
    }
  }

  void run() {
    const Kinds& kinds = Kinds::get();
    for (int step = 0; step < subject_.size(); ++step) {
      const KindId id = subject_.action(step).kind;
      if (id == kinds.count) count(step);
      else if (id == kinds.norm) norm(step);
      else if (id == kinds.forward) forward(step);
      else if (id == kinds.reduce_grad) reduce(step);
      else if (id == kinds.replicate_grad) replicate(step);
      else if (id != kinds.step) check_others(step);
    }
    check_complete();
  }

 private:
  // Indices of actions, -1: none. Except for last_reduction, only actions that the walk has passed count.
  struct UnitState {
    int last_reduction = -1;                  // the last REDUCE_GRAD of the whole program
    int write = -1;                           // the latest write of a gradient that is not reduced yet
    int reduction = -1;                       // the latest REDUCE_GRAD
    GradientPart part = GradientPart::whole;  // of that REDUCE_GRAD
    int replication = -1;                     // the latest REPLICATE_GRAD
    int read = -1;                            // the latest other action that read a gradient that is not reduced yet
    std::set<std::string> summed = {};        // axes over which the gradient is summed
  };

  // Returns whether a later REDUCE_GRAD must add to the sum after this part.
  static bool is_continued(GradientPart part) { return part == GradientPart::first || part == GradientPart::middle; }

  void count(int step) {
    if (count_ >= 0) return say(step, "it repeats {}: the global batch is counted once, remove one", subject_.at(count_));
    if (first_forward_ >= 0)
      say(step, "it comes after {}: put COUNT first, losses and gradients are scaled by it", subject_.at(first_forward_));
    count_ = step;
    check_axes(step);
  }

  void forward(int step) {
    if (first_forward_ < 0) first_forward_ = step;
    if (norm_ >= 0) say(step, "it comes after {}, which sums the losses: put NORM after every F", subject_.at(norm_));
  }

  // Checks that COUNT and NORM sum over all axes over which gradients are summed, and along which ranks hold different parts.
  void check_axes(int step) {
    const std::vector<std::string> axes = subject_.action(step).axes();
    const auto is_left_out = [&](const std::string& axis) { return std::ranges::find(axes, axis) == axes.end(); };
    for (const auto& axis : reduced_axes_) {
      if (!is_left_out(axis)) continue;
      say(step,
          "gradients are summed over '{}' but this action is not, so they would be scaled by one rank's part: add it to axes",
          axis);
    }
    for (const auto& axis : divided_axes(subject_)) {
      if (!is_left_out(axis)) continue;
      say(step, "ranks along '{}' hold different parts of the model, so this action must sum over them: add it to axes", axis);
    }
  }

  void norm(int step) {
    if (norm_ >= 0) return say(step, "it repeats {}: remove one", subject_.at(norm_));
    norm_ = step;
    if (count_ < 0) say(step, "no COUNT comes before it: losses are divided by its numbers, put COUNT first");
    check_axes(step);
    if (!subject_.is_training()) return;
    for (int unit = 0; unit < static_cast<int>(units_.size()); ++unit) check_reduced(step, unit);
  }

  void check_reduced(int step, int unit) {
    if (!subject_.is_trained(unit)) return;
    const UnitState& state = units_[unit];
    const auto replicas = subject_.program.units[unit].replica_axes();
    if (is_continued(state.part)) {
      say(step, "the sum over micro-batches of {} was not ended after {}: its last REDUCE_GRAD needs sum=last",
          subject_.unit(unit), subject_.at(state.reduction));
    } else if (state.last_reduction > step) {
      say(step, "{} comes after it: the norm is that of the summed gradient, reduce first", subject_.at(state.last_reduction));
    } else if (subject_.is_sharded(unit) && !replicas.empty() && state.replication < 0) {
      say(step, "the gradient of {} was not summed over {}, along which its shards are replicated: put REPLICATE_GRAD {} before",
          subject_.unit(unit), joined(replicas), unit);
    } else if (const std::string axis = axis_left_out(unit); is_split_along(axis)) {
      say(step,
          "the model is split along '{}', whose ranks see the same data, but gradients are summed over '{}' here, and then only an "
          "axis named 'pp' is known to be such a one: name the pipeline's axis pp in the mesh, and join it with no other",
          axis, fmt::join(reduced_axes_, "', '"));
    } else if (subject_.model.is_inner(axis)) {
      const auto& tokens = subject_.model.tokens;
      const char* other = tokens && tokens->axis == axis ? "tokens" : "heads or tokens";
      say(step,
          "the gradient of {} was not summed over '{}', along which ranks see other {} of the same samples: apply zero.shard, which "
          "sums over it besides its own axis",
          subject_.unit(unit), axis, other);
    } else if (!axis.empty()) {
      std::vector<std::string> data = data_axes(subject_, unit);
      if (data.empty()) data = {axis};
      const std::string all = fmt::format("{}", fmt::join(data, "\", \""));
      say(step,
          "the gradient of {} was not summed over '{}', along which ranks see other data: {}put REDUCE_GRAD {} before, or give "
          "zero.shard all axes with other data, axis = {}",
          subject_.unit(unit), axis,
          axis == "dp" ? ""
                       : "if they work on the same samples, let layers say so by `tensor`, `context` or `tensor_axes`; else ",
          unit, data.size() > 1 ? "mesh:join{\"" + all + "\"}" : "mesh." + all);
    }
  }

  bool is_split_along(const std::string& axis) const {
    const auto& axes = subject_.program.split_axes;
    return std::ranges::find(axes, axis) != axes.end();
  }

  // Returns an axis over which the unit's gradient must be summed and is not, or an empty string. It must be summed over the axes
  // of its plan, and over all axes along which the unit's parameters see other tokens of the same samples. If the program reduces
  // any gradient (local SGD does not), it must also be summed over all axes along which they see other samples.
  std::string axis_left_out(int unit) const {
    const UnitState& state = units_[unit];
    for (const std::string& axis : subject_.program.units[unit].sum_axes) {
      if (!state.summed.contains(axis)) return axis;
    }
    for (const AxisSize& axis : subject_.mesh.axes()) {
      if (axis.size == 1 || state.summed.contains(axis.name)) continue;
      if (reduced_axes_.empty() && !subject_.model.is_inner(axis.name)) continue;
      if (sees_other_data(subject_, unit, axis.name)) return axis.name;
    }
    return "";
  }

  void check_others(int step) {
    check_writes(step);
    for (const Resource& read : subject_.resources[step].reads) {
      if (read.type != resource::grad) continue;
      if (units_[read.index].write >= 0) units_[read.index].read = step;
    }
  }

  void check_writes(int step) {
    for (const Resource& write : subject_.resources[step].writes) {
      if (write.type != resource::grad) continue;
      UnitState& state = units_[write.index];
      const bool is_compute = role_of(subject_.action(step)) == Role::compute;
      const bool is_reduced = state.last_reduction >= 0 && state.last_reduction < step;
      if (is_compute && state.read > state.write) {
        say(step,
            "{} has read the gradient of {}, which completes its sum: read it after the last backward, or after a reduction",
            subject_.at(state.read), subject_.unit(write.index));
      }
      if (norm_ >= 0) {
        say(step, "it changes the gradient of {} after {}: put it before NORM", subject_.unit(write.index), subject_.at(norm_));
      } else if (is_compute && is_reduced) {
        say(step, "it writes the gradient of {} after its last reduction, {}: reduce after this", subject_.unit(write.index),
            subject_.at(state.last_reduction));
      }
      if (is_compute || !is_reduced) state.write = step;  // another action may change what was summed, such as to clip it
    }
  }

  void reduce(int step) {
    const Action& action = subject_.action(step);
    for (const int unit : action.units()) {
      if (!subject_.model.units[unit].trainable) {
        say(step, "{} is frozen and has no gradient: remove it", subject_.unit(unit));
        continue;
      }
      const auto& axes = subject_.program.units[unit].shard_axes;
      if (subject_.is_sharded(unit) && action.axes() != axes) {
        say(step, "the state of {} is sharded along {}: give axes={}", subject_.unit(unit), joined(axes), as_list(axes));
      }
      check_order(step, unit, action);
      if (units_[unit].replication >= 0)
        say(step, "it comes after {}: sum over {} first", subject_.at(units_[unit].replication), joined(axes));
      for (const std::string& each : action.axes()) units_[unit].summed.insert(each);
      units_[unit].write = -1;
      units_[unit].reduction = step;
      units_[unit].part = action.gradient_part();
    }
  }

  void replicate(int step) {
    const Action& action = subject_.action(step);
    for (const int unit : action.units()) {
      UnitState& state = units_[unit];
      const auto axes = subject_.program.units[unit].replica_axes();
      if (!subject_.is_sharded(unit) || axes.empty())
        say(step, "the shards of {} are not replicated: remove it", subject_.unit(unit));
      else if (action.axes() != axes)
        say(step, "the shards of {} are replicated along {}: give axes={}", subject_.unit(unit), joined(axes), as_list(axes));
      else if (state.reduction < 0 || norm_ >= 0)
        say(step, "it sums what REDUCE_GRAD {} has left: put it after that and before NORM", unit);
      else if (state.replication >= 0) say(step, "it repeats {}: remove one", subject_.at(state.replication));
      state.summed.insert(axes.begin(), axes.end());
      state.replication = step;
    }
  }

  // Checks that a gradient is summed over the ranks once, or in parts: first, middle ..., last.
  void check_order(int step, int unit, const Action& action) {
    const UnitState& state = units_[unit];
    const GradientPart part = action.gradient_part();
    const bool wants_earlier = part == GradientPart::middle || part == GradientPart::last;
    if (state.reduction >= 0 && !(is_continued(state.part) && wants_earlier)) {
      say(step, "the gradient of {} was summed by {} already: it would count every rank twice, remove one", subject_.unit(unit),
          subject_.at(state.reduction));
    } else if (state.reduction < 0 && wants_earlier) {
      say(step, "sum={}, but {} was not reduced before: the first part needs sum=first", action.attr("sum"), subject_.unit(unit));
    } else if (state.write < 0) {
      say(step, "no gradient of {} was written before it: put it after the unit's backward", subject_.unit(unit));
    }
  }

  void check_complete() {
    if (subject_.program.mode == Mode::generate) return;
    if (count_ < 0) say(-1, "COUNT is missing: put it first");
    if (norm_ < 0) say(-1, "NORM is missing: put it after the last B and REDUCE_GRAD");
  }

  std::vector<UnitState> units_;
  std::set<std::string> reduced_axes_;
  int count_ = -1, norm_ = -1, first_forward_ = -1;
};

}  // namespace

void check_gradients(const Subject& subject, Findings& findings) {
  GradientCheck(subject, findings).run();
}

}  // namespace zt::verifier
