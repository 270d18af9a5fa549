// Divides a group of ranks on several nodes into its two levels. Pure functions.
#pragma once

#include <string>
#include <vector>

#include "backend/backend.h"
#include "core/group.h"

namespace zt::comm {

// Returns "" if backend "two_level" suits the group, else the reason and what to take instead. It suits if every node has the
// same number of ranks, at least two, and the ranks of each node are consecutive in the group. With SumOrder::fixed this number
// must be a power of two, because then the sums of the nodes are subtrees of the tree of reduce_tree.h.
// nodes: the node of each rank of the group, in group order. A node may have any number.
std::string why_not_two_level(const std::vector<int>& nodes, SumOrder order);

struct LevelGroups {
  Group inside;  // the ranks of this rank's node; named "dp/inside" for the group "dp"
  Group across;  // the ranks that have this rank's place on their nodes, one per node; "dp/across"
};

// Returns the groups of rank group.rank. Requires a group that why_not_two_level accepts.
LevelGroups level_groups(const Group& group, const std::vector<int>& nodes);

}  // namespace zt::comm
