// Decides which units zero.shard reduces and shards, and which units ranks of a machine share.
#pragma once

#include <vector>

#include "shard.h"

namespace zt::zero {

// By unit of the model.
struct UnitSets {
  std::vector<bool> summed;   // units whose gradients are summed over the ranks
  std::vector<bool> sharded;  // units whose parameters are sharded, frozen units included
  std::vector<bool> planned;  // units with a UnitPlan: state, gradients or parameters are sharded, or ranks share parameters
};

// Returns whether ranks of the axis hold one copy of the parameters per machine. This takes less memory than sharded parameters
// that are gathered for each use, and no communication for gathers.
bool is_node_shared(const ShardOptions& options);

// Throws Misuse if the parameters of a unit have different placements on the axis, or if no parameter is data parallel along it.
UnitSets find_units(const ShardOptions& options, const ModelInfo& model);

// Sets the UnitPlans of the program, at stages 1 to 3.
void plan_units(const ShardOptions& options, const UnitSets& units, Program& program);

}  // namespace zt::zero
