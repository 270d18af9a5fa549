// MPI itself: started when first asked for, ended by the host's orderly shutdown. The only place that starts or ends it.
#pragma once

#include <mpi.h>  // CMake defines OMPI_SKIP_MPICXX: the C++ bindings were removed from MPI and clash with our warnings

#include <chrono>
#include <string>
#include <vector>

#include "zt/process/world.h"

namespace zt::comm {

// MPI_Init_thread on the first call, with MPI_THREAD_MULTIPLE. Thread-safe. Fault if MPI sees another world than `world`. The
// process ends, saying so, when not all ranks have called within `limit`; so in nodes_of_world.
void start_mpi(const World& world, std::chrono::milliseconds limit);
// The library's own words up to the first comma: "Open MPI v4.1.4". Starts nothing.
std::string mpi_version();
// The machine of each rank of the world: the lowest rank on it. Starts MPI; collective over the world at the first call.
const std::vector<int>& nodes_of_world(const World& world, std::chrono::milliseconds limit);
// From now on MPI_Finalize could wait for ever: the shutdown leaves it out, and mpirun ends the job.
void give_up_mpi();
// Fault with MPI's text unless `code` is MPI_SUCCESS. `doing`: "sending to rank 3".
void check_mpi(int code, const std::string& doing);

}  // namespace zt::comm
