#include <set>

#include "verify.h"

namespace zt::verifier {

namespace {

class FieldCheck : RankCheck {
 public:
  FieldCheck(const Subject& subject, int step, Findings& findings)
      : RankCheck(subject, findings), action_(subject.action(step)), kind_(kind(action_.kind)), step_(step) {}

  void run() {
    check_target();
    check_micro_batch();
    try {
      if (kind_.check) kind_.check(action_, subject_.program);
      check_axes();
      check_update();
      check_batch_axes();
      if (kind_.target == Index::unit) check_units();
      check_buffers();
      action_.flag("wait");
    } catch (const Misuse& error) {
      say("{}", error.what());
    }
  }

 private:
  template <class... Args>
  void say(fmt::format_string<Args...> format, Args&&... args) {
    RankCheck::say(step_, format, std::forward<Args>(args)...);
  }

  void check_target() {
    if (kind_.target == Index::none) {
      if (action_.target != -1) say("{} has no target, but {} is given: leave it out", kind_.name, action_.target);
      return;
    }
    const int count = count_of(kind_.target, subject_.model);
    if (action_.target >= 0 && action_.target < count) return;
    say("there is no {} {}: the model has {}, counted from 0", word_of(kind_.target), action_.target, count);
  }

  void check_update() {
    const auto& positions = subject_.model.positions;
    const bool is_known = action_.target >= 0 && action_.target < static_cast<int>(positions.size());
    if (action_.kind != Kinds::get().update || !is_known || positions[static_cast<size_t>(action_.target)].has_update) return;
    say("{} has no buffers that change after a step, or they are frozen: remove it", subject_.position(action_.target));
  }

  // A layer must sum over the batch along all axes whose ranks have other samples, or other tokens of the same ones.
  void check_batch_axes() {
    if (action_.kind != Kinds::get().count) return;
    const auto is_real = [&](const std::string& axis) { return subject_.mesh.has(axis) && subject_.mesh.size(axis) > 1; };
    std::vector<std::string> wanted = action_.sample_axes();
    std::erase_if(wanted, [&](const std::string& axis) { return !is_real(axis); });
    const auto& tokens = subject_.model.tokens;
    for (size_t p = 0; p < subject_.model.positions.size(); ++p) {
      const auto& known = subject_.model.positions[p].batch_axes;
      const auto is_known = [&](const std::string& axis) { return std::ranges::find(known, axis) != known.end(); };
      if (known.empty()) continue;
      if (tokens && is_real(tokens->axis) && !is_known(tokens->axis))
        say("the layer at {} sums over the batch along {}, but ranks along '{}' have other tokens of the same samples: tell it how "
            "tokens are cut, by its option `context`",
            subject_.position(static_cast<int>(p)), joined(known), tokens->axis);
      if (std::ranges::all_of(wanted, is_known)) continue;
      say("the layer at {} sums over the batch along {}, but ranks along {} have other samples: give it batch_axes = {{\"{}\"}}",
          subject_.position(static_cast<int>(p)), joined(known), joined(wanted), fmt::join(wanted, "\", \""));
    }
  }

  void check_micro_batch() {
    const int count = subject_.program.micro_batches;
    if (!kind_.has_micro_batch) {
      if (action_.micro_batch != -1) say("{} has no micro-batch, but {} is given: leave it out", kind_.name, action_.micro_batch);
    } else if (action_.micro_batch < 0 || action_.micro_batch >= count) {
      say("there is no micro-batch {}: the program has {}, counted from 0", action_.micro_batch, count);
    }
  }

  void check_axes() {
    const std::vector<std::string> known = names_of(subject_.mesh.axes(), &AxisSize::name);
    std::set<std::string> seen;
    for (const auto& axis : action_.axes()) {
      if (subject_.mesh.axes().empty())
        say("no pass gave the program a mesh, so there is no axis '{}': apply the pass that uses it", axis);
      else if (!subject_.mesh.has(axis)) say("the mesh {} has no axis '{}'{}", subject_.mesh.text(), axis, suggest(axis, known));
      if (!seen.insert(axis).second) say("axis '{}' is given twice", axis);
    }
  }

  void check_units() {
    std::set<int> seen;
    const std::vector<int> units = action_.units();
    for (size_t i = 0; i < units.size(); ++i) {
      const int count = static_cast<int>(subject_.model.units.size());
      const bool is_known = units[i] >= 0 && units[i] < count;
      if (!is_known && i > 0) say("there is no unit {}: the model has {}, counted from 0", units[i], count);
      if (!seen.insert(units[i]).second) say("unit {} is in this bucket twice", units[i]);
    }
  }

  void check_buffers() {
    if (kind_.target != Index::none && (action_.target < 0 || action_.target >= count_of(kind_.target, subject_.model))) return;
    for (const Resource& used : buffers_used(action_, subject_.model)) {
      if (subject_.program.find_buffer(used.type, used.index)) continue;
      const ResourceType& type = type_of(used.type);
      say("it uses the buffer '{}' of {}, of which this rank has none: name it in the buffers of a pass, with a shape for it (\"like\" "
          "gives frozen units none)",
          type.name, owner_text(type.index, used.index, subject_.model));
    }
  }

  const Action& action_;
  const Kind& kind_;
  int step_;
};

void check_plan_axes(const Subject& subject, int unit, Findings& findings) {
  const UnitPlan& plan = subject.program.units[static_cast<size_t>(unit)];
  const bool has_gradient = subject.model.units[static_cast<size_t>(unit)].trainable;
  for (const auto* axes : {&plan.shard_axes, &plan.sum_axes}) {
    std::set<std::string> seen;
    for (const std::string& axis : *axes) {
      if (!seen.insert(axis).second)
        refuse(subject, findings, -1, "the plan of {} names axis '{}' twice", subject.unit(unit), axis);
      if (subject.mesh.has(axis)) continue;
      refuse(subject, findings, -1, "the plan of {}: the mesh {} has no axis '{}'{}", subject.unit(unit), subject.mesh.text(),
             axis, suggest(axis, names_of(subject.mesh.axes(), &AxisSize::name)));
    }
  }
  for (const std::string& axis : plan.shard_axes) {
    if (!has_gradient || std::ranges::find(plan.sum_axes, axis) != plan.sum_axes.end()) continue;
    refuse(subject, findings, -1,
           "the plan of {} shards it along '{}', over which its gradient is not summed: add the axis to sum_axes",
           subject.unit(unit), axis);
  }
}

void check_homes(const Subject& subject, int unit, Findings& findings) {
  const UnitPlan& plan = subject.program.units[static_cast<size_t>(unit)];
  const std::string name = subject.unit(unit);
  if (plan.slices < 1)
    return refuse(subject, findings, -1, "the plan of {} cuts it into {} slices: give 1 or more", name, plan.slices);
  for (const UnitData data : kAllData) {
    const Home& home = plan.home(data);
    const int most = home.is_elsewhere() && data == UnitData::state ? plan.slices - 1 : 0;
    if (home.stays < 0 || home.stays > most)
      refuse(subject, findings, -1, "the plan of {} lets {} slices of its {} stay in memory: give {}", name, home.stays,
             word_of(data), most == 0 ? "0" : fmt::format("0 to {}", most));
  }
  if (plan.params_home.is_elsewhere() && plan.params != Residence::sharded)
    refuse(
        subject, findings, -1,
        "the plan of {} has its parameters elsewhere between their uses, but they are {}: shard them (params=sharded), UNSHARD "
        "brings them to the layers",
        name, word_of(plan.params));
}

void check_plans(const Subject& subject, Findings& findings) {
  for (size_t unit = 0; unit < subject.program.units.size(); ++unit) {
    const UnitPlan& plan = subject.program.units[unit];
    const std::string name = subject.unit(static_cast<int>(unit));
    const auto is_whole = [](Residence residence) { return residence == Residence::whole; };
    if (plan.shard_axes.empty() != is_whole(plan.state))
      refuse(subject, findings, -1,
             "the plan of {} shards its state along no axis, or names shard_axes and shards nothing: give both", name);
    if (plan.state == Residence::node_shared || plan.grads == Residence::node_shared)
      refuse(subject, findings, -1, "the plan of {} shares state or gradients on a node: only parameters can be shared", name);
    if ((!is_whole(plan.grads) && is_whole(plan.state)) || (plan.params == Residence::sharded && is_whole(plan.grads)))
      refuse(subject, findings, -1,
             "the plan of {} shards parameters without gradients, or gradients without state: shard those too", name);
    if (plan.params == Residence::node_shared && is_whole(plan.state))
      refuse(subject, findings, -1, "the plan of {} shares parameters on a node whose state is not sharded: shard the state too",
             name);
    check_homes(subject, static_cast<int>(unit), findings);
    check_plan_axes(subject, static_cast<int>(unit), findings);
  }
}

void check_pass_buffers(const Subject& subject, Findings& findings) {
  std::set<std::pair<ResourceId, int32_t>> seen;
  for (const PassBuffer& buffer : subject.program.buffers) {
    const ResourceType& type = type_of(buffer.type);
    const auto say = [&](const std::string& what) { refuse(subject, findings, -1, "the buffer '{}' {}", type.name, what); };
    if (buffer.index < 0 || buffer.index >= count_of(type.index, subject.model)) {
      say(fmt::format("is of {} {}, which the model does not have", word_of(type.index), buffer.index));
      continue;
    }
    const std::string owner = owner_text(type.index, buffer.index, subject.model);
    if (!seen.insert({buffer.type, buffer.index}).second)
      say(fmt::format("of {} is declared twice: if two passes bring it, apply one of them", owner));
    if (buffer.residence == BufferResidence::sharded && type.index != Index::unit)
      say(fmt::format("is sharded, but only units are cut over ranks, and it is of {}: give another residence", owner));
    if (type.index == Index::unit && !subject.program.units[static_cast<size_t>(buffer.index)].held)
      say(fmt::format("is of {}, which this rank does not hold", owner));
  }
}

// A placement that nothing honours would train wrong numbers: without boxes, each rank would update "its part" of a tensor that
// every rank initialised as the whole.
void check_params(const Subject& subject, Findings& findings) {
  for (const ParamInfo& param : subject.model.params) {
    for (const AxisPlacement& on : param.placements) {
      if (on.placement != Placement::sharded) continue;
      const int size = subject.mesh.has(on.axis) ? subject.mesh.size(on.axis) : 1;
      if (on.parts == size) continue;
      if (!subject.mesh.has(on.axis)) {
        refuse(
            subject, findings, -1,
            "parameter '{}' is sharded on axis '{}', which the program does not know: give zt.program the option mesh, or apply a pass "
            "over an axis of that mesh",
            param.name, on.axis);
        continue;
      }
      refuse(
          subject, findings, -1,
          "parameter '{}' is sharded on axis '{}' into {} parts, but the mesh {} has {} ranks along it: cut it into one part per "
          "rank",
          param.name, on.axis, on.parts, subject.mesh.text(), size);
    }
  }
}

void check_layers(const Subject& subject, Findings& findings) {
  for (size_t p = 0; p < subject.model.positions.size(); ++p) {
    for (const auto& axis : subject.model.positions[p].axes) {
      if (subject.mesh.has(axis)) continue;
      const std::string layer = subject.position(static_cast<int>(p));
      if (subject.mesh.axes().empty() && subject.model.is_inner(axis))
        refuse(subject, findings, -1,
               "the layer at {} communicates on axis '{}', but no pass gave the program a mesh: make it with zt.program(model, "
               "{{mesh = mesh}}), or apply zero.shard over the axes whose ranks have other samples",
               layer, axis);
      else if (subject.mesh.axes().empty())
        refuse(subject, findings, -1,
               "the layer at {} communicates on axis '{}', but no pass gave the program a mesh: apply zero.shard over all axes "
               "whose ranks have other samples, such as axis = mesh:join{{\"dp\", \"{}\"}}",
               layer, axis, axis);
      else
        refuse(subject, findings, -1,
               "the layer at {} communicates on axis '{}', which the mesh {} does not have: add it to the mesh", layer, axis,
               subject.mesh.text());
    }
  }
}

}  // namespace

void check_fields(const Subject& subject, Findings& findings) {
  if (subject.program.micro_batches < 1)
    refuse(subject, findings, -1, "{} micro-batches: a program needs at least one", subject.program.micro_batches);
  if (subject.program.units.size() != subject.model.units.size()) {
    return refuse(subject, findings, -1, "it has plans for {} units, the model has {}: give one per unit",
                  subject.program.units.size(), subject.model.units.size());
  }
  check_plans(subject, findings);
  check_pass_buffers(subject, findings);
  for (const std::string& axis : subject.program.split_axes) {
    if (subject.mesh.has(axis)) continue;
    refuse(subject, findings, -1, "it is split over axis '{}', which the mesh {} does not have{}", axis, subject.mesh.text(),
           suggest(axis, names_of(subject.mesh.axes(), &AxisSize::name)));
  }
  check_layers(subject, findings);
  check_params(subject, findings);
  for (int step = 0; step < subject.size(); ++step) {
    try {
      FieldCheck(subject, step, findings).run();
    } catch (const Misuse& error) {
      refuse(subject, findings, step, "{}", error.what());  // a kind that is not registered
    }
  }
}

}  // namespace zt::verifier
