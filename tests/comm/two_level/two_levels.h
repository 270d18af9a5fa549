// A communicator of two levels within one process.
#pragma once

#include <chrono>
#include <memory>

#include "comm/support/ranks.h"
#include "mesh/mesh.h"

namespace zt::comm {

// Makes a two-level communicator that treats every `places` consecutive ranks as one node.
inline std::shared_ptr<Communicator> two_levels(const World& world, int places, SumOrder order = SumOrder::fixed) {
  return make_communicator(world, "two_level", test::whole_group(world, "dp"),
                           {.timeout = std::chrono::seconds(60), .sum_order = order, .ranks_per_node = places});
}

}  // namespace zt::comm
