// A backend whose operations take as long as on a slow network, so that a network can be measured on one machine.
#pragma once

#include <atomic>
#include <memory>
#include <string>

#include "backend/backend.h"
#include "mesh/mesh.h"
#include "zt/process/world.h"

namespace zt {

// The network of one rank. An operation takes `seconds` and the time for the bytes that the rank sends to others; the next one
// starts when it is done.
struct Network {
  std::atomic<double> seconds = 0, bytes_per_second = 0;  // of each operation; 0 bytes per second: without limit
  std::atomic<bool> carries_all = false;                  // whether others than all_to_all take time, too
  std::atomic<double> spent = 0, bytes = 0;               // seconds and bytes of all operations so far
};

// Returns a mesh of all ranks, which are threads, over the network.
std::shared_ptr<Mesh> make_slow_mesh(const World& world, const MeshShape& shape, const std::shared_ptr<Network>& network);

// Returns a backend that moves data by `inner` at once, in the call, and says that it has arrived when the network would have
// sent it. Meanwhile the thread may compute.
std::unique_ptr<comm::Backend> make_slow_backend(std::unique_ptr<comm::Backend> inner, std::shared_ptr<Network> network);

}  // namespace zt
