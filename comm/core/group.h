// The ranks of one communicator as one of them sees them. Plain data.
#pragma once

#include <string>
#include <vector>

namespace zt {
struct World;
}

namespace zt::comm {

struct Group {
  std::string name;        // the axis: "dp"
  int rank = 0;            // this rank's index in `ranks`
  std::vector<int> ranks;  // world ranks, in group order
  // Of the two ends of a channel: their ranks in the group that has made the channel, in group order. Empty: 0, 1, ...
  std::vector<int> made_as = {};

  int size() const { return static_cast<int>(ranks.size()); }
  Group renamed(const std::string& other) const { return {other, rank, ranks, made_as}; }
  // Returns "rank 1 (world rank 5)", for error messages. For the end of a pipeline's channel, rank 1 is that along the pipeline.
  std::string rank_name(int group_rank) const;
};

// The arguments of Communicator::channel as data.
struct ChannelPlan {
  int from = 0, to = 1;  // group ranks of the communicator that makes the channel
  int depth = 1;
  std::string name;  // "pp forward 0>1"

  // Returns the group of the two ranks, named as the channel: rank 0 sends, rank 1 receives. This rank is one of them.
  Group pair(const Group& group) const {
    const auto world_rank = [&](int rank) { return group.ranks[static_cast<size_t>(rank)]; };
    return {name, group.rank == from ? 0 : 1, {world_rank(from), world_rank(to)}, {from, to}};
  }
};

// Returns the group of all ranks of the world, in order.
Group whole_group(const World& world, const std::string& name);

}  // namespace zt::comm
