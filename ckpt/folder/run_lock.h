// Holds a run's folder for one process, so that two runs never write into one folder.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

namespace zt::ckpt {

// The file RUN/run.lock names the process that holds the folder: host, boot, process id, its start time. The holder also locks
// the file by flock(2), which the kernel releases when the process ends, however it ends. A thread renews the file's modification
// time every kHeartbeat.
//
// Another process takes over the file that a run has left:
//   (1) on the same machine, once the holder has ended. A suspended holder (SIGSTOP) keeps the folder.
//   (2) if it cannot see the holder, which runs on another machine or in another pid namespace, once the file's time is older
//       than kStale by the file system's own clock. On a local file system flock shows at once that the holder has ended.
// If several processes start at once, one gets the lock. flock decides; on file systems that may lack it, the last process to
// write the file wins, and each reads the file again after kSettle.
class RunLock {
 public:
  static constexpr std::chrono::seconds kHeartbeat{10}, kStale{60}, kSettle{1};

  // Requires that the folder exists. Throws a Fault that names the holder if another process, or another RunLock of this process,
  // holds the folder.
  explicit RunLock(const std::string& folder);
  ~RunLock();  // releases
  RunLock(const RunLock&) = delete;
  RunLock& operator=(const RunLock&) = delete;

  // Removes the file and releases the lock. May be called twice.
  void release() noexcept;
  // Throws a Fault if another run has taken over the folder or the file was removed. A takeover is possible if this process
  // was suspended for more than kStale and the other run cannot see it. Throws Misuse after release().
  void check() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Who holds a run's folder.
struct RunHolder {
  std::string host;
  int64_t pid = 0;       // 0: a process that is taking the folder and has not yet written its name
  bool is_alive = true;  // a holder that this process cannot see is alive if it has renewed the file within kStale
  double silent = 0;     // seconds since such a holder has renewed the file, by this machine's clock; 0 for others
};

// Returns what RUN/run.lock says, without touching it; nullopt if there is no such file: no run is under way.
std::optional<RunHolder> run_holder(const std::string& folder);

}  // namespace zt::ckpt
