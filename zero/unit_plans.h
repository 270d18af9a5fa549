// Decides how zero.shard spreads each unit over the ranks.
#pragma once

#include <vector>

#include "shard.h"

namespace zt::zero {

// Returns whether ranks of the axis hold one copy of the parameters per machine. This takes less memory than sharded parameters
// that are gathered for each use, and no communication for gathers.
bool is_node_shared(const ShardOptions& options);

// Returns one plan per unit of the model; the default for units whose ranks see the same data. Axes are in the order of `mesh`.
// Throws Misuse if parameters of a unit have different placements on an axis, or if no trained parameter sees other data along
// one of the axes.
std::vector<UnitPlan> plan_units(const ShardOptions& options, const ModelInfo& model, const MeshShape& mesh);

// Returns, by unit, whether its gradient is summed over ranks.
std::vector<bool> summed_units(const ModelInfo& model, const std::vector<UnitPlan>& plans);

}  // namespace zt::zero
