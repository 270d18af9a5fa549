// Which units zero.shard sums, cuts and shares.
#pragma once

#include <vector>

#include "shard.h"

namespace zt::zero {

// By unit of the model.
struct UnitSets {
  std::vector<bool> summed;  // their gradients are summed over the ranks
  std::vector<bool> cut;     // their parameters come and go; also frozen ones, of which every rank would hold the same
  std::vector<bool> held;    // something of theirs is cut: they have a plan
};

// Do ranks of the axis hold parameters once a machine? One copy takes less memory than a cut one that is gathered when it is
// used, and gathers nothing.
bool is_node_shared(const ShardOptions& options);

// Misuse when the parameters of a unit relate differently to the axis, and when no parameter sees other data along it.
UnitSets find_units(const ShardOptions& options, const ModelInfo& model);

// How the units are held, at stages 1 to 3.
void plan_units(const ShardOptions& options, const UnitSets& units, Program& program);

}  // namespace zt::zero
