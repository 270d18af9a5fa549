// An in-order queue of tasks with a thread of its own, so that communication goes on while the owner computes.
//
// Invariants: tasks run one at a time in the order of the calls. What `run_now` runs while nothing is queued runs in the caller.
// After a task failed, no later one runs: each fails with the same exception. The thread starts with the first task that needs it
// and never enters Lua. Threads: one thread submits and destroys.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <future>
#include <mutex>
#include <thread>

#include "wait_policy.h"
#include "zt/comm/comm.h"

namespace zt::comm {

class Queue {
 public:
  using Task = std::function<void(WaitPolicy::Style)>;

  Queue() = default;
  ~Queue() { close(); }
  Queue(const Queue&) = delete;

  Work submit(Task task);
  // Runs call(style) and returns when it has run.
  template <class Call>
  void run_now(Call&& call) {
    if (!is_idle()) return submit(std::forward<Call>(call)).wait();
    // Nobody else touches failure_ now: one thread submits, and the queue's thread has nothing to do.
    if (failure_) std::rethrow_exception(failure_);
    try {
      call(WaitPolicy::Style::caller);
    } catch (...) {
      failure_ = std::current_exception();
      throw;
    }
  }
  // Returns when nothing is queued; rethrows the first failure.
  void drain();
  // Gives what is under way a short grace, then cancels it, and ends the thread. Nothing may be submitted afterwards.
  void close();
  // Tasks that wait look at it and throw.
  bool cancelled() const { return cancelled_; }

 private:
  struct Entry {
    Task task;
    std::promise<void> promise;
  };
  bool is_idle();
  void serve();
  bool run(const Task& task, WaitPolicy::Style style);
  void finish(Entry& entry, bool ran);

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Entry> entries_;
  bool busy_ = false;  // the thread runs a task
  bool closing_ = false;
  std::exception_ptr failure_;
  std::atomic<bool> cancelled_{false};
  std::thread thread_;
};

}  // namespace zt::comm
