#include "unit_plans.h"

#include <algorithm>

#include "zt/base/error.h"

namespace zt::zero {

namespace {

// Returns whether the unit's gradient is summed over the axis. Throws Misuse if its trainable parameters differ in placement.
bool is_summed(const ModelInfo& model, int unit, const std::string& axis) {
  const ParamInfo* first = nullptr;
  for (const int index : model.units[unit].params) {
    const ParamInfo& param = model.params[index];
    if (!param.trainable) continue;
    if (!first) first = &param;
    if (placement_on(param.placements, axis) == placement_on(first->placements, axis)) continue;
    misuse(
        "zero.shard: the parameters '{}' and '{}' of unit '{}' are placed differently on axis '{}', and a unit is reduced as a "
        "whole: put them into different layers",
        first->name, param.name, model.units[unit].name, axis);
  }
  return first && placement_on(first->placements, axis) == Placement::replicated_other_data;
}

std::vector<bool> summed_units(const ShardOptions& options, const ModelInfo& model) {
  const std::string& axis = options.axis->name;
  std::vector<bool> units(model.units.size());
  for (int unit = 0; unit < static_cast<int>(units.size()); ++unit) {
    units[unit] = is_summed(model, unit, axis);
    if (!options.replicate || !units[unit] || is_summed(model, unit, options.replicate->name)) continue;
    misuse(
        "zero.shard: the parameters of unit '{}' see other data along '{}' but not along '{}', so groups along the latter are "
        "not data-parallel replicas",
        model.units[unit].name, axis, options.replicate->name);
  }
  const bool is_trained =
      std::any_of(model.units.begin(), model.units.end(), [](const UnitInfo& unit) { return unit.trainable; });
  if (is_trained && std::find(units.begin(), units.end(), true) == units.end()) {
    misuse(
        "zero.shard: along axis '{}' no parameter sees other data, so there is nothing to sum: give the data axis, or state the "
        "parameters' placements",
        axis);
  }
  return units;
}

}  // namespace

bool is_node_shared(const ShardOptions& options) {
  const Axis& axis = *options.axis;
  return options.stage >= 1 &&
         options.node_shared.value_or(axis.size > 1 && axis.link.shares_memory && !options.moves_parameters());
}

UnitSets find_units(const ShardOptions& options, const ModelInfo& model) {
  UnitSets units{summed_units(options, model), std::vector<bool>(model.units.size()), {}};
  units.planned = options.stage >= 1 ? units.summed : units.sharded;
  if (options.stage < 3) return units;
  for (size_t unit = 0; unit < units.sharded.size(); ++unit) {
    const UnitInfo& info = model.units[unit];
    const bool is_alike = std::all_of(info.params.begin(), info.params.end(), [&](int index) {
      return placement_on(model.params[index].placements, options.axis->name) == Placement::replicated_other_data;
    });
    const bool is_one_copy_enough = is_alike && info.numel > 0 && info.numel >= options.persist_below;
    units.sharded[unit] = is_one_copy_enough && !is_node_shared(options);
    units.planned[unit] = units.planned[unit] || is_one_copy_enough;
  }
  return units;
}

void plan_units(const ShardOptions& options, const UnitSets& units, Program& program) {
  for (size_t unit = 0; unit < program.units.size(); ++unit) {
    if (units.planned[unit])
      program.units[unit] = {.axis = options.axis->name,
                             .state_sharded = true,
                             .grad_sharded = options.stage >= 2 || units.sharded[unit],
                             .param_sharded = units.sharded[unit],
                             .node_shared = is_node_shared(options),
                             .replicate = options.replicate ? options.replicate->name : ""};
  }
}

}  // namespace zt::zero
