#include "shard.h"

#include <algorithm>

#include "buckets.h"
#include "handlers.h"
#include "readiness.h"
#include "residency.h"
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
    const std::vector<bool> cut = cut_units(model);
    if (options_.stage >= 1) plan(program, units, cut);
    if (program.mode == Mode::train) {
      const auto ready = options_.reduction() == "step" ? last_writes(program.actions, model, ResourceKind::grad, units)
                                                        : micro_batch_gradients(program.actions, model, units);
      program.actions = insert(std::move(program.actions), model, ready, kinds.reduce_grad, {ResourceKind::grad});
    }
    if (program.mode == Mode::train && options_.stage >= 1) {
      std::vector<bool> whole = units;
      for (size_t unit = 0; unit < whole.size(); ++unit) whole[unit] = whole[unit] && !cut[unit];
      const auto ready = last_writes(program.actions, model, ResourceKind::master, whole);
      program.actions =
          insert(std::move(program.actions), model, ready, kinds.unshard, {ResourceKind::param, ResourceKind::master});
    }
    program.actions =
        insert_residency(std::move(program.actions), model, cut, {axis(), options_.prefetch, options_.max_reuse_distance});
    return program;
  }

 private:
  const std::string& axis() const { return options_.axis->name; }

  // Whose parameters are cut: also frozen ones, of which every rank would hold the same.
  std::vector<bool> cut_units(const ModelInfo& model) const {
    std::vector<bool> cut(model.units.size(), false);
    for (size_t unit = 0; unit < cut.size() && options_.stage >= 3; ++unit) {
      const UnitInfo& info = model.units[unit];
      const bool is_alike = std::all_of(info.params.begin(), info.params.end(), [&](int index) {
        return placement_on(model.params[index].placements, axis()) == Placement::replicated_other_data;
      });
      cut[unit] = is_alike && info.numel > 0 && info.numel >= options_.persist_below;
    }
    return cut;
  }

  void plan(Program& program, const std::vector<bool>& summed, const std::vector<bool>& cut) const {
    for (size_t unit = 0; unit < summed.size(); ++unit) {
      if (summed[unit] || cut[unit])
        program.units[unit] = {
            .axis = axis(), .state_sharded = true, .grad_sharded = options_.stage >= 2 || cut[unit], .param_sharded = cut[unit]};
    }
  }

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
          .optional("stage", &ShardOptions::stage,
                    "what is cut over the ranks. 0: nothing, 1: optimizer state, 2: gradients too, 3: parameters too",
                    Check<int>(between(0, 3)))
          .optional("bucket_bytes", &ShardOptions::bucket_bytes, "small units are merged up to this size; 0: no merging",
                    Check<int64_t>(at_least(0)))
          .optional("reduce_every", &ShardOptions::reduce_every, "when gradients are summed over the ranks",
                    one_of({"step", "micro_batch"}))
          .optional("prefetch", &ShardOptions::prefetch, "stage 3: units that are gathered ahead of their use",
                    Check<int>(at_least(0)))
          .optional("persist_below", &ShardOptions::persist_below, "stage 3: units of fewer elements stay whole",
                    Check<int64_t>(at_least(0)))
          .optional("max_reuse_distance", &ShardOptions::max_reuse_distance,
                    "stage 3: a unit stays whole if at most so many elements of others are used before its next use",
                    Check<int64_t>(at_least(0)));
  ShardOptions parsed = schema.parse(options);
  const ShardOptions defaults;
  const bool is_given = parsed.prefetch != defaults.prefetch || parsed.persist_below != defaults.persist_below ||
                        parsed.max_reuse_distance != defaults.max_reuse_distance;
  if (parsed.stage < 3 && is_given) {
    misuse(
        "zero.shard: prefetch, persist_below and max_reuse_distance are about parameters that come and go, at stage 3; this is "
        "stage {}",
        parsed.stage);
  }
  return parsed;
}

std::shared_ptr<Pass> make_shard(ShardOptions options) {
  if (options.axis->name.find('+') != std::string::npos) {
    misuse("zero.shard: '{}' joins several axes, which units are not cut along: give one axis of the mesh", options.axis->name);
  }
  return std::make_shared<Shard>(std::move(options));
}

}  // namespace zt::zero
