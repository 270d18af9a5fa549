// Messages over MPI, a process a rank.
#pragma once

#include <chrono>
#include <memory>

#include "messages/transport.h"
#include "zt/process/world.h"

namespace zt::comm {

// Makes this rank's side of a communicator over `group`; starts MPI if needed. Called by all its ranks: the process ends, saying
// so, when they have not within `limit`. Fault if MPI fails.
std::unique_ptr<Transport> make_mpi_transport(const World& world, Group group, std::chrono::milliseconds limit);

}  // namespace zt::comm
