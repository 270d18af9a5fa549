// For calls into MPI that wait for other ranks and know no time-out: starting MPI, making a communicator.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>

#include "core/group.h"

namespace zt::comm {

// While one lives, the process has `limit` to get on, and less when the script of a rank that it waits for has ended. Then it
// says on stderr what it waited for and ends with status 1, whereupon mpirun ends the others. Such a call cannot be left.
class Watchdog {
 public:
  // waits_for: "rank 1 waits for all ranks to start MPI". group: of the ranks that the call waits for.
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
