// A communicator of two levels within one process.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <memory>

#include "core/group.h"
#include "mesh/make_backend.h"
#include "support/spawn.h"

namespace zt::comm {

// Makes a two-level communicator that treats every `places` consecutive ranks as one node.
inline std::shared_ptr<Communicator> two_levels(const World& world, int places, SumOrder order = SumOrder::fixed) {
  return make_communicator(world, "two_level", whole_group(world, "dp"),
                           {.timeout = std::chrono::seconds(60), .sum_order = order, .ranks_per_node = places});
}

// Makes a communicator without levels.
inline std::shared_ptr<Communicator> one_level(const World& world) {
  return make_communicator(world, "local", whole_group(world, "flat"), {.timeout = std::chrono::seconds(60)});
}

// Calls body(two levels, one level) on every rank of worlds of several shapes.
inline void on_nodes(const std::function<void(Communicator&, Communicator&)>& body) {
  struct Shape {
    int ranks, places;
  };
  for (const auto& [ranks, places] : {Shape{4, 2}, Shape{8, 4}, Shape{8, 2}, Shape{6, 2}}) {
    test::spawn(ranks, [&body, places = places](const World& world) {
      const auto two = two_levels(world, places);
      const auto flat = one_level(world);
      SCOPED_TRACE(fmt::format("rank {} of {}, {} on a node", world.rank, world.size, places));
      body(*two, *flat);
    });
  }
}

}  // namespace zt::comm
