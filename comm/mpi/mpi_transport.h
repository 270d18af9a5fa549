// Messages over MPI, a process a rank.
#pragma once

#include <memory>

#include "host/transport.h"
#include "zt/world.h"

namespace zt::comm {

// Makes this rank's side of a communicator over `group`; starts MPI if needed. Called by all its ranks. Fault if MPI fails.
std::unique_ptr<Transport> make_mpi_transport(const World& world, Group group);

}  // namespace zt::comm
