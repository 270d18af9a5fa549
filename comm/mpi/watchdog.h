// A time limit for MPI calls that wait for other ranks and have no timeout: starting MPI, making a communicator.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>

#include "core/group.h"

namespace zt::comm {

// Ends the process if the object still lives after `limit`, or earlier if the script of a rank that the call waits for has ended.
// The process prints on stderr what it waited for and exits with status 1; mpirun then ends the others. An exception is not
// possible, because the MPI call does not return.
class Watchdog {
 public:
  // waits_for: for the message, "rank 1 waits for all ranks to start MPI". group: the ranks that the call waits for.
  Watchdog(std::chrono::milliseconds limit, std::string waits_for, Group group);
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;

 private:
  std::string find_reason(std::chrono::milliseconds limit, const Group& group);

  std::mutex mutex_;
  std::condition_variable changed_;
  bool is_over_ = false;
  std::thread thread_;
};

}  // namespace zt::comm
