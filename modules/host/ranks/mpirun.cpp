#include "mpirun.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <set>

#include "zt/base/error.h"
#include "zt/base/machine.h"
#include "zt/process/world.h"

namespace zt::host {

namespace {

// Returns the number of cores that this process may use. Two hardware threads of a core count once.
int usable_cores() {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  if (sched_getaffinity(0, sizeof(allowed), &allowed) != 0) return std::max(1L, sysconf(_SC_NPROCESSORS_ONLN));
  std::set<std::string> cores;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (!CPU_ISSET(cpu, &allowed)) continue;
    std::string siblings;
    std::ifstream(fmt::format("/sys/devices/system/cpu/cpu{}/topology/thread_siblings_list", cpu)) >> siblings;
    cores.insert(siblings.empty() ? std::to_string(cpu) : siblings);
  }
  return static_cast<int>(cores.size());
}

// Whether a batch system or the user has told mpirun which machines there are.
bool is_batch_job() {
  constexpr const char* kSigns[] = {"SLURM_JOB_ID",
                                    "PBS_NODEFILE",
                                    "LSB_HOSTS",
                                    "PE_HOSTFILE",
                                    "OMPI_MCA_orte_default_hostfile",
                                    "PRTE_MCA_prte_default_hostfile"};
  return std::any_of(std::begin(kSigns), std::end(kSigns), [](const char* name) { return environment(name) != nullptr; });
}

}  // namespace

std::vector<std::string> mpirun_arguments(int ranks, int cores, bool is_batch, const std::vector<std::string>& words) {
  std::vector<std::string> all{"mpirun", "-n", std::to_string(ranks)};
  if (!is_batch && ranks > cores) all.insert(all.end(), {"--oversubscribe", "--bind-to", "none"});
  if (!is_batch && ranks <= cores)
    all.insert(all.end(), {"--map-by", fmt::format("slot:PE={}", cores / ranks), "--bind-to", "core"});
  all.insert(all.end(), words.begin(), words.end());
  return all;
}

void start_by_mpirun(int ranks, const std::vector<std::string>& words) {
  if (World::from_environment().launch == Launch::mpi)
    misuse("-n starts mpirun, and this process is a rank of mpirun already: leave out one of them");
  const int cores = usable_cores();
  const bool is_batch = is_batch_job();
  if (!is_batch && ranks > cores) {
    fmt::print(stderr, "ztoolkit: {} ranks share {} {}, so each computes more slowly than on a core of its own\n", ranks, cores,
               cores == 1 ? "core" : "cores");
  }
  if (geteuid() == 0) {
    for (const char* name :
         {"OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "PRTE_ALLOW_RUN_AS_ROOT", "PRTE_ALLOW_RUN_AS_ROOT_CONFIRM"})
      setenv(name, "1", 0);
  }
  const std::vector<std::string> arguments = mpirun_arguments(ranks, cores, is_batch, words);
  std::vector<char*> pointers;
  for (const std::string& argument : arguments) pointers.push_back(const_cast<char*>(argument.c_str()));
  pointers.push_back(nullptr);
  execvp(pointers[0], pointers.data());
  fault("cannot start mpirun ({}): install Open MPI and put it on PATH, or let the ranks be threads of one process: --threads {}",
        std::strerror(errno), ranks);
}

}  // namespace zt::host
