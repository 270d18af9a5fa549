// Chooses backends, and makes communicators on them.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "mesh/mesh.h"
#include "zt/process/world.h"

namespace zt::comm {

// Returns what is known of communication on a backend by its name.
AxisLink link_of(const std::string& backend);

// Returns the backend that uses messages in host memory only: "mpi" between processes, "local" between threads.
std::string flat_backend(const World& world);

// Returns the backend for a group of ranks: "local" without mpirun. Under mpirun, "shm" on one machine; on several "two_level"
// where sums keep their bits through two levels, else "mpi". The same on all ranks of the group. Collective over the world.
std::string default_backend(const World& world, const Group& group, const Settings& settings = {});

// Makes a communicator over group.ranks of `world`. Collective over these ranks, or over the world if the nodes of the ranks have
// to be found out. Throws Misuse if the backend does not suit the ranks or the way in which the run was started.
std::shared_ptr<Communicator> make_communicator(const World& world, const std::string& backend, Group group,
                                                const Settings& settings = {});
// As make_communicator, without the argument checks and the flight record of CheckedCommunicator.
std::unique_ptr<Backend> make_backend(const World& world, const std::string& backend, Group group, const Settings& settings);
// Throws Misuse if the group's ranks are on other machines than the backend needs: one for "shm", equal powers of two of ranks on
// each for "two_level". In a dry run, settings.ranks_per_node must define the nodes.
void check_machines(const World& world, const std::string& backend, const Group& group, const Settings& settings);

// Returns the node number of each rank of the group: ranks on one machine have the same number. The first call is collective over
// the world, unless settings.ranks_per_node defines the nodes.
std::vector<int> nodes_of(const World& world, const Group& group, const Settings& settings);
bool is_one_node(const std::vector<int>& nodes);

}  // namespace zt::comm
