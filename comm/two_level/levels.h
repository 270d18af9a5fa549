// How a group of ranks on several nodes is cut into its two levels. Pure functions.
#pragma once

#include <string>
#include <vector>

#include "core/backend.h"
#include "core/group.h"

namespace zt::comm {

// nodes: the node of each rank of a group, in group order; which number a node has does not matter.
// "" when backend "two_level" suits the group, else the reason and what to take instead. It suits when every node has as many
// ranks as the others, two or more, that follow one another in the group; for SumOrder::fixed a power of two, because then the
// sums of the nodes are subtrees of the tree of NUMERICS.
std::string why_not_two_level(const std::vector<int>& nodes, SumOrder order);

struct LevelGroups {
  Group inside;  // the ranks of this rank's node; named "dp/inside" for the group "dp"
  Group across;  // the ranks that have this rank's place on their nodes, one a node; "dp/across"
};

// Of group.rank, for a group that suits.
LevelGroups level_groups(const Group& group, const std::vector<int>& nodes);

}  // namespace zt::comm
