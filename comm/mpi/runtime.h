// Starts MPI at its first use, and ends it in the host's orderly shutdown. No other code starts or ends MPI.
#pragma once

#include <mpi.h>  // CMake defines OMPI_SKIP_MPICXX: the C++ bindings were removed from MPI and clash with our warnings

#include <chrono>
#include <string>
#include <vector>

#include "zt/process/world.h"

namespace zt::comm {

// Calls MPI_Init_thread with MPI_THREAD_MULTIPLE at the first call. Thread-safe. Throws Fault if MPI's rank or size differ from
// those of `world`. If not all ranks make the first call within `limit`, the process prints that and exits.
void start_mpi(const World& world, std::chrono::milliseconds limit);
// Returns the version text of the library up to the first comma: "Open MPI v4.1.4". Does not start MPI.
std::string mpi_version();
// Returns the node of each world rank, named by the lowest rank on it. Starts MPI. The first call is collective over the world,
// with `limit` as in start_mpi.
const std::vector<int>& nodes_of_world(const World& world, std::chrono::milliseconds limit);
// Makes the shutdown skip MPI_Finalize, which could wait for ever from now on. mpirun ends the job instead.
void give_up_mpi();
// Throws Fault with MPI's text unless `code` is MPI_SUCCESS. `doing` is for the message: "sending to rank 3".
void check_mpi(int code, const std::string& doing);

}  // namespace zt::comm
