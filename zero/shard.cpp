#include "shard.h"

#include <algorithm>

#include "buckets.h"
#include "handlers.h"
#include "readiness.h"
#include "zt/options.h"

namespace zt::zero {

namespace {

// Appends `axis` to the axes that an action communicates on.
void add_axis(Action& action, const std::string& axis) {
  auto axes = action.axes();
  if (std::find(axes.begin(), axes.end(), axis) != axes.end()) return;
  axes.push_back(axis);
  action.attrs["axes"] = Value::List(axes.begin(), axes.end());
}

// Is the unit's gradient summed over the axis? Misuse when its trainable parameters disagree.
bool is_summed(const ModelInfo& model, int unit, const std::string& axis) {
  const ParamInfo* first = nullptr;
  for (const int index : model.units[unit].params) {
    const ParamInfo& param = model.params[index];
    if (!param.trainable) continue;
    if (!first) first = &param;
    if (placement_on(param.placements, axis) == placement_on(first->placements, axis)) continue;
    misuse(
        "zero.shard: the parameters '{}' and '{}' of unit '{}' are placed differently on axis '{}', and a unit is reduced as a "
        "whole: "
        "put them into different layers",
        first->name, param.name, model.units[unit].name, axis);
  }
  return first && placement_on(first->placements, axis) == Placement::replicated_other_data;
}

class Shard : public Pass {
 public:
  explicit Shard(ShardOptions options) : options_(std::move(options)) {}
  std::string name() const override { return "zero.shard"; }
  Phase phase() const override { return Phase::residency; }
  std::shared_ptr<Mesh> mesh() const override { return std::const_pointer_cast<Mesh>(options_.axis->mesh.lock()); }
  std::vector<std::pair<KindId, std::shared_ptr<ActionHandler>>> handlers() const override { return make_handlers(); }

  Program apply(Program program, const ModelInfo& model, const Coord&) const override {
    const std::vector<bool> units = summed_units(model);
    const Kinds& kinds = Kinds::get();
    check_untouched(program, units, model);
    for (Action& action : program.actions) {
      if (action.kind == kinds.count || action.kind == kinds.norm) add_axis(action, axis());
    }
    if (options_.stage >= 1) {
      for (size_t unit = 0; unit < units.size(); ++unit) {
        if (units[unit]) program.units[unit] = {axis(), true};
      }
    }
    if (program.mode != Mode::train) return program;
    auto ready = options_.reduce_every == "step" ? last_writes(program.actions, model, ResourceKind::grad, units)
                                                 : micro_batch_gradients(program.actions, model, units);
    program.actions = insert(std::move(program.actions), model, ready, kinds.reduce_grad, {ResourceKind::grad});
    if (options_.stage >= 1) {
      ready = last_writes(program.actions, model, ResourceKind::master, units);
      program.actions =
          insert(std::move(program.actions), model, ready, kinds.unshard, {ResourceKind::param, ResourceKind::master});
    }
    return program;
  }

 private:
  const std::string& axis() const { return options_.axis->name; }

  std::vector<Action> insert(std::vector<Action> actions, const ModelInfo& model, const std::vector<Ready>& ready, KindId kind,
                             std::vector<ResourceKind> touched) const {
    return insert_buckets(std::move(actions), model, ready, {kind, axis(), std::move(touched), options_.bucket_bytes});
  }

  std::vector<bool> summed_units(const ModelInfo& model) const {
    std::vector<bool> units(model.units.size());
    for (size_t unit = 0; unit < units.size(); ++unit) units[unit] = is_summed(model, static_cast<int>(unit), axis());
    const bool is_trained =
        std::any_of(model.units.begin(), model.units.end(), [](const UnitInfo& unit) { return unit.trainable; });
    if (is_trained && std::find(units.begin(), units.end(), true) == units.end()) {
      misuse(
          "zero.shard: along axis '{}' no parameter sees other data, so there is nothing to sum: name the data axis dp, ep or "
          "sp, or state "
          "the parameters' placements",
          axis());
    }
    return units;
  }

  // Summing a gradient twice would count every rank twice.
  static void check_untouched(const Program& program, const std::vector<bool>& units, const ModelInfo& model) {
    const auto refuse = [&](int unit) {
      misuse("zero.shard: unit '{}' is sharded or reduced by an earlier pass already: apply zero.shard once",
             model.units[unit].name);
    };
    for (size_t unit = 0; unit < units.size(); ++unit) {
      if (units[unit] && program.units.at(unit) != UnitPlan{}) refuse(static_cast<int>(unit));
    }
    for (const Action& action : program.actions) {
      if (action.kind != Kinds::get().reduce_grad) continue;
      for (const int unit : action.units()) {
        if (units.at(unit)) refuse(unit);
      }
    }
  }

  ShardOptions options_;
};

}  // namespace

ShardOptions parse_shard_options(const Value& options) {
  static const auto schema =
      Schema<ShardOptions>("zero.shard")
          .required("axis", &ShardOptions::axis, "the mesh axis whose ranks see other data, as mesh.dp")
          .optional("stage", &ShardOptions::stage, "0: all state on every rank; 1: optimizer state is cut over the ranks",
                    Check<int>(between(0, 1)))
          .optional("bucket_bytes", &ShardOptions::bucket_bytes, "small units are merged up to this size; 0: no merging",
                    Check<int64_t>(at_least(0)))
          .optional("reduce_every", &ShardOptions::reduce_every, "when gradients are summed over the ranks",
                    Check<std::string>(one_of({"step", "micro_batch"})));
  return schema.parse(options);
}

std::shared_ptr<Pass> make_shard(ShardOptions options) {
  if (options.axis->name.find('+') != std::string::npos) {
    misuse("zero.shard: '{}' joins several axes, which units are not cut along: give one axis of the mesh", options.axis->name);
  }
  return std::make_shared<Shard>(std::move(options));
}

}  // namespace zt::zero
