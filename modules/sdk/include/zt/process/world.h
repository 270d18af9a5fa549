// Where this rank stands: how many there are and how they were started. Made by the host, one per Lua state.
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
  mpi,      // started by mpirun: a process a rank
};

// What ranks that are threads of one process share. Thread-safe.
class ThreadGroup {
 public:
  explicit ThreadGroup(int size) : size_(size) {}
  int size() const { return size_; }

  // The object under `key`, made by the first caller. It lives as long as the group.
  template <class T>
  std::shared_ptr<T> shared(const std::string& key, const std::function<std::shared_ptr<T>()>& make) {
    const std::lock_guard lock(mutex_);
    auto& slot = objects_[key];
    if (!slot) slot = make();
    return std::static_pointer_cast<T>(slot);
  }

  // Called by a rank that failed. Whoever waits for another rank polls `aborted` and throws Aborted.
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
  bool dry = false;                      // `run --dry` and `plan`: communicators are null, the first step ends the run
  int plan = -1;                         // `plan`: the descriptor that the plan is written to, at the first step
  bool is_json = false;                  // as JSON
  int ranks_per_node = 1;                // of this machine; `plan`: of the run that is planned
  std::string backend = {};              // `plan`: of axes for which the script names none; empty: the default of such a run
  std::shared_ptr<ThreadGroup> threads;  // set when launch == threads

  // What the environment says (mpirun's variables), without touching MPI.
  static World from_environment();
};

// Where the ranks of one machine meet by files: mpirun makes it for a run and removes it; empty without mpirun.
std::string session_folder();

// The folder in which this process's run keeps its record ("runs/gpt"), set when a script opens a run; empty without one.
// Thread-safe.
void set_run_folder(const std::string& path);
std::string run_folder();

// A run that is told to stop (SIGUSR2; without mpirun SIGTERM too) may end by itself between two steps, with all it has saved.
// From the first question on the process is not ended by these signals.
bool is_stop_requested();
// False if nobody has asked yet, or one was requested before. May be called in a signal handler.
bool request_stop();

// Called once by the host when the process ends in order, latest registered first: comm registers MPI_Finalize.
void at_shutdown(std::function<void()> action);
void run_shutdown_actions();

}  // namespace zt
