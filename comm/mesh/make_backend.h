// Makes a backend from its name.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "mesh/mesh_options.h"
#include "zt/process/world.h"

namespace zt::comm {

// Returns the backend that uses messages in host memory only: "mpi" between processes, "local" between threads.
std::string flat_backend(const World& world);

// As make_communicator, without the argument checks and the flight record of CheckedCommunicator.
std::unique_ptr<Backend> make_backend(const World& world, const std::string& backend, Group group, const Settings& settings);
// Throws Misuse if the group's ranks are on other machines than the backend needs: one for "shm", equal powers of two of ranks on
// each for "two_level". In a dry run, settings.ranks_per_node must define the nodes.
void check_machines(const World& world, const std::string& backend, const Group& group, const Settings& settings);
// Splits the nccl backend over the world and returns the part over `group`. Collective over the world.
std::unique_ptr<Backend> split_backend(const World& world, Backend& nccl_world, Group group, const Settings& settings);

// Returns the node number of each rank of the group: ranks on one machine have the same number. The first call is collective over
// the world, unless settings.ranks_per_node defines the nodes.
std::vector<int> nodes_of(const World& world, const Group& group, const Settings& settings);
bool is_one_node(const std::vector<int>& nodes);

}  // namespace zt::comm
