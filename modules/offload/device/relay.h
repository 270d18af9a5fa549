// A thread that starts the second part of a transfer when the first is over.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

#include "zt/comm/comm.h"

namespace zt::offload {

// Transfers are served in the order in which they were added.
// Threads: any.
class Relay {
 public:
  Relay();
  // Serves what was added, then ends.
  ~Relay();
  Relay(const Relay&) = delete;
  // Waits for `first`, then calls `start`, which starts the second part, and after that `finish`, if there is one. Returns the
  // work of both parts.
  Work add(Work first, std::function<Work()> start, std::function<void(const Work& second)> finish = {});

 private:
  void run();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> jobs_;
  bool ends_ = false;
  std::thread thread_;
};

}  // namespace zt::offload
