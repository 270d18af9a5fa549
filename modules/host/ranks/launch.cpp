#include "launch.h"

#include <dlfcn.h>
#include <sched.h>
#include <unistd.h>
#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <mutex>
#include <optional>
#include <set>
#include <thread>
#include <vector>

#include "ending/failure.h"
#include "zt/base/error.h"
#include "zt/base/isa.h"
#include "zt/base/machine.h"
#include "zt/simulate/costs.h"

namespace zt::host {

namespace {

using namespace std::chrono_literals;

// How long ranks may take to end after one of them failed. Including mpirun's own part, a run then ends within 5 s.
constexpr auto kGrace = 2s;

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

// Returns the arguments of mpirun, its own name first, for `ranks` processes of the command line `words` on a machine with
// `cores` cores for them. If they suffice, each rank is bound to an equal number of cores; else the ranks share them. In a batch
// job mpirun knows the machines, and places ranks itself.
std::vector<std::string> mpirun_arguments(int ranks, int cores, bool is_batch, const std::vector<std::string>& words) {
  std::vector<std::string> all{"mpirun", "-n", std::to_string(ranks)};
  if (!is_batch && ranks > cores) all.insert(all.end(), {"--oversubscribe", "--bind-to", "none"});
  if (!is_batch && ranks <= cores)
    all.insert(all.end(), {"--map-by", fmt::format("slot:PE={}", cores / ranks), "--bind-to", "core"});
  all.insert(all.end(), words.begin(), words.end());
  return all;
}

// Replaces this process by mpirun with these arguments for `words`, on the cores that this process may use. Says so on stderr if
// ranks share cores. root may run it, as in a container. Throws Misuse if this process is a rank of mpirun, and Fault if mpirun
// cannot be started.
[[noreturn]] void start_by_mpirun(int ranks, const std::vector<std::string>& words) {
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

// BLIS 0.9 does not know AMD's processors from Zen 5 on, and would multiply by code for any processor, at a fifth of the speed.
// Its code for Intel's AVX-512 is the fastest there. The name begins with no digit, which it reads as 0, the number of that code.
void tell_blis_the_processor() {
#if defined(__x86_64__)
  constexpr unsigned kZen5 = 0x1A;
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (!__builtin_cpu_is("amd") || supported_isas().back() != Isa::avx512 || !__get_cpuid(1, &a, &b, &c, &d)) return;
  const unsigned family = (a >> 8 & 0xF) + (a >> 20 & 0xFF);
  if (family >= kZen5) setenv("BLIS_ARCH_TYPE", "skx", /*overwrite=*/0);
#endif
}

// LibTorch looks for its CUDA part once, when something first asks for it, as autograd does, also on the CPU. So where there is
// an NVIDIA driver, that part is opened before a script begins, and never closed. A LibTorch for CPUs only has no such part.
void open_torch_cuda() {
  // How many streams a GPU executes independently of each other. By default it is 8, and a rank has a stream per communicator.
  setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", /*overwrite=*/0);
  // The results are looked at, so neither call is the last thing that a function does. As a jump it would come from libc, which
  // does not search this program's folders.
  [[maybe_unused]] static const bool is_open =
      dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL) && dlopen("libtorch_cuda.so", RTLD_NOW | RTLD_GLOBAL);
}

int run_process(const Paths& paths, const Script& script, const World& world) {
  const auto finish = [](int status) {
    // If the status is not 0, other ranks may wait for this one, and closing MPI would wait for them.
    if (status != 0) end_process_within(kGrace, status);
    run_shutdown_actions();
    leave_process(status);
  };
  const int status = run_rank(world, paths, script, finish);
  if (status != 0) end_process(status);
  run_shutdown_actions();
  return status;
}

// The ranks of this process, as threads. Thread-safe.
class RankThreads {
 public:
  explicit RankThreads(int size) : group_(std::make_shared<ThreadGroup>(size)) {}

  // Runs `script` on all ranks. Returns 0 when all have ended, or the status of the first failure at most kGrace after it.
  int run(const Paths& paths, const Script& script, World world) {
    world.threads = group_;
    is_parked_.assign(world.size, 0);
    for (world.rank = 0; world.rank < world.size; ++world.rank) {
      threads_.emplace_back([this, &paths, &script, world] { run_one(paths, script, world); });
    }
    std::unique_lock lock(mutex_);
    const auto all_ended = [&] { return ended_ == world.size; };
    changed_.wait(lock, [&] { return failure_ || all_ended(); });
    changed_.wait_for(lock, kGrace, all_ended);
    if (failure_) {
      // A rank that fails prints its error. One that calls os.exit may print nothing, so the end of the others needs a word.
      if (failure_->way == Way::os_exit && settled_ < world.size) {
        fmt::print(stderr, "ztoolkit: rank {} ended by itself, with status {} (os.exit), so the other ranks end, too\n",
                   failure_->rank, failure_->status);
      }
      return failure_->status;
    }
    lock.unlock();
    for (int rank = 0; rank < world.size; ++rank) {
      if (!is_parked_[rank]) threads_[rank].join();
    }
    return EXIT_SUCCESS;
  }

 private:
  enum class Way : uint8_t { script, os_exit };  // how a rank ended: its script returned or failed, or it called os.exit
  struct Failure {
    int rank, status;
    Way way;
  };

  void run_one(const Paths& paths, const Script& script, const World& world) {
    int status = EXIT_FAILURE;
    try {
      status = run_rank(world, paths, script, [this, &world](int exit_status) {
        is_parked_[world.rank] = 1;
        end(world.rank, exit_status, Way::os_exit);
        // The script's frames are still on this thread's stack, and their Lua state is closed. So this thread never returns.
        for (;;) std::this_thread::sleep_for(1h);
      });
    } catch (const std::exception& error) {
      report_once(world, error.what(), fmt::format("ztoolkit: rank {} failed: {}", world.rank, error.what()));
    }
    end(world.rank, status, Way::script);
  }

  void end(int rank, int status, Way way) {
    const std::lock_guard lock(mutex_);
    ++ended_;
    if (status == 0 || way == Way::os_exit) ++settled_;
    if (status != 0) {
      group_->abort();
      if (!failure_) failure_ = {rank, status, way};
    }
    changed_.notify_all();
  }

  const std::shared_ptr<ThreadGroup> group_;
  std::vector<std::thread> threads_;
  std::vector<char> is_parked_;  // by rank: its script called os.exit, so its thread never ends
  std::mutex mutex_;
  std::condition_variable changed_;
  int ended_ = 0;
  int settled_ = 0;  // ranks that ended well or by os.exit: no other rank's end interrupted them
  std::optional<Failure> failure_;
};

int run_threads(const Paths& paths, const Script& script, const World& world) {
  // Never destroyed: threads whose script called os.exit stay in it until the process ends.
  static RankThreads& ranks = *new RankThreads(world.size);
  const int status = ranks.run(paths, script, world);
  if (status != 0) end_process(status);
  run_shutdown_actions();
  return status;
}

// Returns the command line of a rank that mpirun starts.
std::vector<std::string> words_of_rank(const Script& script, const LaunchOptions& options) {
  std::vector<std::string> words{script.before.front(), "run"};
  if (options.is_dry) words.emplace_back("--dry");
  words.push_back(script.path);
  words.insert(words.end(), script.arguments.begin(), script.arguments.end());
  return words;
}

// Returns the world of a `ztoolkit plan`.
World planned_world(World world, const LaunchOptions& options) {
  if (world.launch == Launch::mpi) misuse("ztoolkit plan needs no ranks: start it without mpirun, with --ranks N");
  if (options.rank >= options.ranks) misuse("there is no rank {} of {}: ranks are counted from 0", options.rank, options.ranks);
  world.rank = options.rank;
  world.size = options.ranks;
  const Hardware machine = options.plan.costs.empty() ? Hardware{} : find_costs(options.plan.costs).hardware;
  world.ranks_per_node = options.ranks_per_node > 0 ? options.ranks_per_node : machine.ranks_per_machine;
  world.backend = options.backend.empty() ? machine.backend : options.backend;
  world.dry = true;
  return world;
}

// Returns the script with what its plan shows. With --json, redirects the script's standard output to standard error.
Script planned(Script script, const LaunchOptions& options) {
  script.plan = options.plan;
  script.plan->ranks_per_machine = options.ranks_per_node;
  script.plan->descriptor = dup(STDOUT_FILENO);
  if (options.plan.is_json) dup2(STDERR_FILENO, STDOUT_FILENO);
  return script;
}

}  // namespace

int launch(const Paths& paths, const Script& script, const LaunchOptions& options) {
  if (options.processes > 0) start_by_mpirun(options.processes, words_of_rank(script, options));
  World world = World::from_environment();
  if (options.is_plan) {
    world = planned_world(world, options);
    return run_process(paths, planned(script, options), world);
  }
  world.dry = options.is_dry;
  tell_blis_the_processor();
  open_torch_cuda();
  if (options.threads == 0) return run_process(paths, script, world);
  if (world.launch == Launch::mpi)
    misuse("--threads and mpirun exclude each other: ranks are threads of one process, or processes");
  world.launch = Launch::threads;
  world.size = world.ranks_per_node = options.threads;
  return run_threads(paths, script, world);
}

}  // namespace zt::host
