// A zt::Mesh whose axes communicate.
#pragma once

#include <memory>
#include <string>

#include "core/backend.h"
#include "mesh_options.h"
#include "zt/comm/mesh.h"
#include "zt/process/world.h"

namespace zt::comm {

// Returns the backend for a group of ranks: "local" without mpirun. Under mpirun, "shm" on one machine; on several "two_level"
// where sums keep their bits through two levels, else "mpi". The same on all ranks of the group. Collective over the world.
std::string default_backend(const World& world, const Group& group, const Settings& settings = {});

// A communicator over group.ranks of `world`, called by all of them (where the machines have to be found out: by the world).
// Misuse if the backend does not suit the ranks or the way the run was started.
std::shared_ptr<Communicator> make_communicator(const World& world, const std::string& backend, Group group,
                                                const Settings& settings = {});

// Collective over the world. Logs, once, which backends were chosen.
std::shared_ptr<Mesh> make_mesh(const World& world, const MeshOptions& options);

}  // namespace zt::comm
