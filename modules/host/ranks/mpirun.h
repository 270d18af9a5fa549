// Starts the ranks of a run by mpirun: `ztoolkit run -n 4 script.lua`.
#pragma once

#include <string>
#include <vector>

namespace zt::host {

// Returns the arguments of mpirun, its own name first, for `ranks` processes of the command line `words` on a machine with
// `cores` cores for them. If they suffice, each rank is bound to an equal number of cores; else the ranks share them. In a batch
// job
// (`is_batch`) mpirun knows the machines, and places ranks itself.
std::vector<std::string> mpirun_arguments(int ranks, int cores, bool is_batch, const std::vector<std::string>& words);

// Replaces this process by mpirun with these arguments for `words`, on the cores that this process may use. Says so on stderr if
// ranks share cores. root may run it, as in a container. Throws Misuse if this process is a rank of mpirun, and Fault if mpirun
// cannot be started.
[[noreturn]] void start_by_mpirun(int ranks, const std::vector<std::string>& words);

}  // namespace zt::host
