// Decides how zero.shard spreads each unit over the ranks.
#pragma once

#include <vector>

#include "shard.h"

namespace zt::zero {

// Returns one plan per unit of the model; the default for units whose ranks see the same data. Axes are in the order of `mesh`.
// Throws Misuse if parameters of a unit have different placements on an axis, or if no trained parameter sees other data along
// one of the axes.
std::vector<UnitPlan> plan_units(const ShardOptions& options, const ModelInfo& model, const MeshShape& mesh);

// Returns, by unit, whether its gradient is summed over ranks.
std::vector<bool> summed_units(const ModelInfo& model, const std::vector<UnitPlan>& plans);

}  // namespace zt::zero
