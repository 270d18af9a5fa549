// An in-order queue of tasks with its own thread, so that communication goes on while the owner computes.
//
// Invariants: tasks run one at a time in the order of the calls. `run_now` runs its task in the caller if nothing is queued.
// After a task failed, no later task runs: each fails with the same exception. The thread starts with the first task that needs
// it and never enters Lua. Threads: one thread submits tasks and destroys the queue.
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
    // failure_ needs no lock here: only this thread submits, and the queue's thread is idle.
    if (failure_) std::rethrow_exception(failure_);
    try {
      call(WaitPolicy::Style::caller);
    } catch (...) {
      failure_ = std::current_exception();
      throw;
    }
  }
  // Waits until nothing is queued or running. Rethrows the first failure.
  void drain();
  // Waits a short time for unfinished tasks, then cancels them, and ends the thread. Nothing may be submitted afterwards.
  void close();
  // Waiting tasks poll this and throw once it is true.
  bool cancelled() const { return cancelled_; }

 private:
  struct Entry {
    Task task;
    std::promise<void> promise;
  };
  bool is_idle();
  void serve();
  bool run(const Task& task, WaitPolicy::Style style);

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
