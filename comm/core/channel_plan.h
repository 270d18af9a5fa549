// The arguments of Communicator::channel as data.
#pragma once

#include <string>

#include "group.h"

namespace zt::comm {

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

}  // namespace zt::comm
