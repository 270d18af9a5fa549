// Holds a run's folder for one process, so that two runs never write into one folder.
#pragma once

#include <chrono>
#include <memory>
#include <string>

namespace zt::ckpt {

// The file RUN/run.lock says which process holds the folder: host, boot, process id, its start time. The holder also keeps it
// locked by flock(2), which the kernel gives up when the process ends, however it ends. A thread renews the file's time every
// kHeartbeat.
//
// Takeover of a file that a run has left:
//   (1) on the same machine: another process, when the holder has ended. A suspended holder (SIGSTOP) is not overtaken.
//   (2) from another machine, or where processes of another pid namespace cannot be seen and the file system is not a local one:
//       when the file's time is older than kStale by the file system's own clock.
// Of several that start at once one gets the lock: flock decides, and on file systems that may lack it, the last to write the
// file, which each reads again after kSettle.
class RunLock {
 public:
  static constexpr std::chrono::seconds kHeartbeat{10}, kStale{60}, kSettle{1};

  // folder: exists. Throws: Fault that names the holder while another process, or another RunLock of this one, holds the folder.
  explicit RunLock(const std::string& folder);
  ~RunLock();  // releases
  RunLock(const RunLock&) = delete;
  RunLock& operator=(const RunLock&) = delete;

  // Removes the file and ends the lock. Safe to call twice.
  void release() noexcept;
  // Throws: Fault when another run has taken the folder over, as after a suspension of more than kStale seen from another
  // machine.
  void check() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace zt::ckpt
