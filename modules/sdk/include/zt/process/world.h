// The ranks of a run: how many there are, how they were started, and which of them this one is. The host makes one World per Lua
// state.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>

namespace zt {

enum class Launch {
  single,   // one process, one rank
  threads,  // ranks are threads of this process
  mpi,      // started by mpirun: one process per rank
};

// State that the ranks share if they are threads of one process. Thread-safe.
class ThreadGroup {
 public:
  explicit ThreadGroup(int size) : size_(size) {}
  int size() const { return size_; }

  // Returns the object of `key`, which the first caller makes. It lives as long as the group. `make` runs under a lock: it must
  // not call `shared`. All callers of a key must give the same T.
  template <class T>
  std::shared_ptr<T> shared(const std::string& key, const std::function<std::shared_ptr<T>()>& make) {
    const std::lock_guard lock(mutex_);
    auto& object = objects_[key];
    if (!object) object = make();
    return std::static_pointer_cast<T>(object);
  }

  // A rank that failed calls `abort`. Code that waits for another rank polls `aborted` and then throws Aborted.
  void abort() { aborted_.store(true); }
  bool aborted() const { return aborted_.load(); }

 private:
  const int size_;
  std::atomic<bool> aborted_{false};
  std::mutex mutex_;
  std::map<std::string, std::shared_ptr<void>> objects_;
};

struct World {
  int rank = 0;
  int size = 1;
  Launch launch = Launch::single;
  bool dry = false;                      // `run --dry` and `plan`: communicators move nothing, and the first step ends the run
  int ranks_per_node = 1;                // ranks on this machine; `plan`: ranks per node of the planned run
  std::string backend = {};              // backend of axes for which the script names none; empty: the one that suits the ranks
  std::shared_ptr<ThreadGroup> threads;  // set when launch == threads

  // Returns the World that mpirun's environment variables describe, or a single rank without them. Does not call MPI. Throws
  // Misuse if a variable is not a number.
  static World from_environment();
};

// Returns the folder in which the ranks of one machine exchange files, or an empty string without mpirun. mpirun makes the folder
// for a run and removes it.
std::string session_folder();

// The folder in which this process's run keeps its records ("runs/gpt"). It is set when a script opens a run; empty without a
// run. Thread-safe.
void set_run_folder(const std::string& path);
std::string run_folder();

// Returns whether the run was told to stop (SIGUSR2; without mpirun also SIGTERM), so that it can save and end between two steps.
// After the first call the first such signal does not end the process.
bool is_stop_requested();
// Requests a stop. Returns false if is_stop_requested was never called or if a stop was requested before: the caller then ends
// the process. Safe in a signal handler.
bool request_stop();

// Registers an action for the regular end of the process. The host runs them once, the latest registered first. For example,
// comm registers MPI_Finalize.
void at_shutdown(std::function<void()> action);
void run_shutdown_actions();

}  // namespace zt
