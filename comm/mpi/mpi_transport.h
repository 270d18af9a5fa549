// Messages over MPI, one process per rank.
#pragma once

#include <chrono>
#include <memory>

#include "messages/transport.h"
#include "zt/process/world.h"

namespace zt::comm {

// Makes this rank's side of a communicator over `group` and starts MPI if needed. Collective over the group: if not all of its
// ranks make the call within `limit`, the process prints that and exits. Throws Fault if MPI fails.
std::unique_ptr<Transport> make_mpi_transport(const World& world, Group group, std::chrono::milliseconds limit);

}  // namespace zt::comm
