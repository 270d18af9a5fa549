// From a script's comm.mesh{...} to a zt::Mesh whose axes communicate.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "backend.h"
#include "zt/mesh.h"
#include "zt/value.h"
#include "zt/world.h"

namespace zt::comm {

struct MeshOptions {
  std::vector<AxisSize> axes = {};  // the last one varies fastest over the ranks
  std::string backend = {};         // empty: what suits the run
  std::chrono::milliseconds timeout = kDefaultTimeout;
};

// {dp = 2, tp = -1, order = {"dp", "tp"}, backend = "mpi", timeout = 60}: all keys but order, backend and timeout are axes.
// `order` is needed with two axes or more. Misuse for anything else.
MeshOptions parse_mesh_options(const Value& value);

// "null" for a dry run; under mpirun "shm" when all ranks run on one machine, else "mpi"; "local" without mpirun. Collective over
// the world.
std::string default_backend(const World& world, std::chrono::milliseconds timeout = kDefaultTimeout);

// A communicator over group.ranks of `world`. Called by all of them. Misuse if the backend does not suit the way the run was
// started.
std::shared_ptr<Communicator> make_communicator(const World& world, const std::string& backend, Group group,
                                                std::chrono::milliseconds timeout = kDefaultTimeout);

// Collective over the world.
std::shared_ptr<Mesh> make_mesh(const World& world, const MeshOptions& options);

}  // namespace zt::comm
