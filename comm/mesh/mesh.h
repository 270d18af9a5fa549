// Makes meshes whose axes have communicators.
#pragma once

#include <memory>
#include <string>

#include "backend/backend.h"
#include "mesh_options.h"
#include "zt/comm/mesh.h"
#include "zt/process/world.h"

namespace zt::comm {

// Returns the backend for a group of ranks: "local" without mpirun. Under mpirun, "shm" on one machine; on several "two_level"
// where sums keep their bits through two levels, else "mpi". The same on all ranks of the group. Collective over the world.
std::string default_backend(const World& world, const Group& group, const Settings& settings = {});

// Makes a communicator over group.ranks of `world`. Collective over these ranks, or over the world if the nodes of the ranks have
// to be found out. Throws Misuse if the backend does not suit the ranks or the way in which the run was started.
std::shared_ptr<Communicator> make_communicator(const World& world, const std::string& backend, Group group,
                                                const Settings& settings = {});

// Makes a mesh. Collective over the world. Logs each backend that was chosen by default, once per axis name.
std::shared_ptr<Mesh> make_mesh(const World& world, const MeshOptions& options);

}  // namespace zt::comm
