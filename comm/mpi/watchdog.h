// For calls into MPI that wait for other ranks and know no time-out: starting MPI, making a communicator.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>

namespace zt::comm {

// While one lives, the process has `limit` to get on: then it says on stderr what it waited for and ends with status 1, whereupon
// mpirun ends the others. There is no way back out of such a call.
class Watchdog {
 public:
  // waits_for: "rank 1 waits for all ranks to start MPI".
  Watchdog(std::chrono::milliseconds limit, std::string waits_for);
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool is_over_ = false;
  std::thread thread_;
};

}  // namespace zt::comm
