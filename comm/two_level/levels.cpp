#include "two_level/levels.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

namespace zt::comm {

namespace {

// Consecutive ranks on one node.
struct NodeStretch {
  int node = 0;
  int first = 0;
  int ranks = 0;
};

std::vector<NodeStretch> stretches_of(const std::vector<int>& nodes) {
  std::vector<NodeStretch> stretches;
  for (size_t r = 0; r < nodes.size(); ++r) {
    if (r == 0 || nodes[r] != nodes[r - 1]) stretches.push_back({nodes[r], static_cast<int>(r), 0});
    ++stretches.back().ranks;
  }
  return stretches;
}

// Returns "" if the ranks of every node are consecutive, else the reason why not.
std::string why_not_contiguous(const std::vector<NodeStretch>& stretches) {
  for (auto again = stretches.begin(); again != stretches.end(); ++again) {
    const auto before =
        std::find_if(stretches.begin(), again, [&](const NodeStretch& other) { return other.node == again->node; });
    if (before == again) continue;
    return fmt::format(
        "ranks {} and {} of the axis are on one node and rank {} between them is on another: the ranks of a node have to follow "
        "one another. Start the ranks node by node (mpirun --map-by slot), let the axes that stay inside a node vary faster, or "
        "take backend = \"mpi\"",
        before->first, again->first, (before + 1)->first);
  }
  return "";
}

}  // namespace

std::string why_not_two_level(const std::vector<int>& nodes, SumOrder order) {
  const std::vector<NodeStretch> stretches = stretches_of(nodes);
  if (stretches.size() <= 1) {
    return fmt::format("the axis has {} ranks, all on one node, so there is no second level: take backend = \"shm\"",
                       nodes.size());
  }
  if (std::string reason = why_not_contiguous(stretches); !reason.empty()) return reason;
  const int ranks = stretches[0].ranks;
  for (const NodeStretch& other : stretches) {
    if (other.ranks == ranks) continue;
    return fmt::format(
        "rank {} is on a node with {} of the axis's ranks, rank 0 on one with {}: every node needs as many as the others. Start "
        "as many ranks on each node, or take backend = \"mpi\"",
        other.first, other.ranks, ranks);
  }
  if (ranks == 1) {
    return fmt::format(
        "each of the {} ranks is on a node of its own, so there is nothing to do inside a node: take backend = \"mpi\"",
        nodes.size());
  }
  if (order == SumOrder::fixed && !std::has_single_bit(static_cast<unsigned>(ranks))) {
    return fmt::format(
        "every node has {} ranks, which is no power of two: sums that are taken inside the nodes first would leave the fixed "
        "order and have other bits than on other backends. If that is acceptable, give sum_order = \"any\"; else take backend = "
        "\"mpi\"",
        ranks);
  }
  return "";
}

LevelGroups level_groups(const Group& group, const std::vector<int>& nodes) {
  const int places = static_cast<int>(std::count(nodes.begin(), nodes.end(), nodes[0]));
  const int node = group.rank / places, place = group.rank % places;
  LevelGroups groups{{group.name + "/inside", place, {}}, {group.name + "/across", node, {}}};
  for (int r = 0; r < group.size(); ++r) {
    const int world_rank = group.ranks[static_cast<size_t>(r)];
    if (r / places == node) groups.inside.ranks.push_back(world_rank);
    if (r % places == place) groups.across.ranks.push_back(world_rank);
  }
  return groups;
}

}  // namespace zt::comm
