#include "unit_plans.h"

#include <algorithm>

#include "zt/base/error.h"

namespace zt::zero {

namespace {

bool is_among(const std::vector<std::string>& names, const std::string& name) {
  return std::ranges::find(names, name) != names.end();
}

// Returns whether the unit's ranks see other data along the axis. Throws Misuse if its parameters differ in that.
bool sees_other_data(const ModelInfo& model, const UnitInfo& unit, const std::string& axis) {
  const ParamInfo& first = model.params[unit.params.front()];
  for (const int index : unit.params) {
    const ParamInfo& param = model.params[index];
    if (placement_on(param.placements, axis) == placement_on(first.placements, axis)) continue;
    misuse(
        "zero.shard: the parameters '{}' and '{}' of unit '{}' are placed differently on axis '{}', and a unit is reduced as a "
        "whole: put them into different layers",
        first.name, param.name, unit.name, axis);
  }
  return placement_on(first.placements, axis) == Placement::replicated_other_data;
}

// Returns those of `wanted` and of the model's inner axes along which the unit's ranks see other data, in the mesh's order.
std::vector<std::string> axes_of_unit(const ModelInfo& model, const UnitInfo& unit, const std::vector<std::string>& wanted,
                                      const MeshShape& mesh) {
  std::vector<std::string> axes;
  for (const AxisSize& axis : mesh.axes()) {
    const bool is_wanted = is_among(wanted, axis.name) || model.is_inner(axis.name);
    if (is_wanted && sees_other_data(model, unit, axis.name)) axes.push_back(axis.name);
  }
  return axes;
}

// Throws Misuse unless a trained unit is summed over each axis.
void check_covered(const ModelInfo& model, const std::vector<UnitPlan>& plans, const std::vector<std::string>& axes) {
  if (std::ranges::none_of(model.units, &UnitInfo::trainable)) return;
  const std::vector<bool> summed = summed_units(model, plans);
  for (const std::string& axis : axes) {
    if (model.is_inner(axis)) continue;
    bool is_covered = false;
    for (size_t unit = 0; unit < plans.size(); ++unit)
      is_covered = is_covered || (summed[unit] && is_among(plans[unit].sum_axes, axis));
    if (is_covered) continue;
    misuse(
        "zero.shard: along axis '{}' no parameter sees other data, so there is nothing to sum: give the data axis, or state the "
        "parameters' placements",
        axis);
  }
}

// Returns whether the ranks along `axes`, which shard a unit, hold one copy of its parameters per machine. This takes less memory
// than sharded parameters that are gathered for each use, and no communication for gathers.
bool is_node_shared(const ShardOptions& options, const std::vector<std::string>& axes) {
  const Axis& axis = *options.axis;
  const bool is_wanted =
      options.stage >= 1 && options.node_shared.value_or(axis.size > 1 && axis.link.shares_memory && !options.moves_parameters());
  const auto is_own = [&](const std::string& name) { return is_among(axis.names, name); };
  if (!is_wanted || std::ranges::all_of(axes, is_own)) return is_wanted;
  const auto mesh = axis.mesh.lock();
  const bool shares = mesh && mesh->link(axes).shares_memory;
  if (!shares && options.node_shared)
    misuse("zero.shard: node_shared = true needs ranks of one machine, and those along '{}' together are not: leave it out",
           fmt::join(axes, "', '"));
  return shares;
}

}  // namespace

std::vector<UnitPlan> plan_units(const ShardOptions& options, const ModelInfo& model, const MeshShape& mesh) {
  std::vector<UnitPlan> plans;
  for (const UnitInfo& info : model.units) {
    UnitPlan& plan = plans.emplace_back();
    const bool is_small = info.numel == 0 || info.numel < options.persist_below;
    if (!info.trainable && (options.stage < 3 || is_small)) continue;  // nothing is summed, and parameters stay whole
    plan.sum_axes = axes_of_unit(model, info, options.data_axes(), mesh);
    if (options.stage == 0) continue;
    plan.shard_axes = axes_of_unit(model, info, options.axis->names, mesh);
    if (options.replicate)
      std::erase_if(plan.shard_axes, [&](const std::string& axis) { return is_among(options.replicate->names, axis); });
    if (plan.shard_axes.empty()) continue;
    const bool shards_params = options.stage == 3 && !is_small;
    plan.state = Residence::sharded;
    plan.params = is_node_shared(options, plan.shard_axes) ? Residence::node_shared
                  : shards_params                          ? Residence::sharded
                                                           : Residence::whole;
    plan.grads = options.stage >= 2 || plan.params == Residence::sharded ? Residence::sharded : Residence::whole;
  }
  check_covered(model, plans, options.data_axes());
  return plans;
}

std::vector<bool> summed_units(const ModelInfo& model, const std::vector<UnitPlan>& plans) {
  std::vector<bool> units;
  for (size_t unit = 0; unit < plans.size(); ++unit)
    units.push_back(model.units[unit].trainable && !plans[unit].sum_axes.empty());
  return units;
}

}  // namespace zt::zero
