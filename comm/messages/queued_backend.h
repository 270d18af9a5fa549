// What the backends in host memory share: the queue, time-outs, lists, and errors that tell the whole story.
#pragma once

#include <atomic>
#include <memory>

#include "core/backend.h"
#include "queue.h"
#include "recorder/ended.h"
#include "zt/base/error.h"

namespace zt::comm {

struct TimedOut;

// Thrown in tasks on all ranks alike when one of them cannot take part: nothing was changed.
class Declined : public Fault {
 public:
  using Fault::Fault;
};

// Invariant: after a Fault every further operation fails with it; nothing is touched any more.
// A subclass calls `close` in its destructor: tasks use what it has.
class QueuedBackend : public Backend {
 public:
  std::optional<at::Device> device() const override { return at::kCPU; }
  Work submit(Operation operation, Async async) override;
  void set_timeout(std::chrono::milliseconds timeout) override { timeout_ = timeout; }
  void set_check(CheckMode mode) override { check_ = mode; }
  void drain() override { queue_.drain(); }
  void record_in(std::shared_ptr<Ring> ring) override { ring_ = std::move(ring); }

 protected:
  // One blocking operation on one tensor or pair of tensors, checked. Errors: Fault, Aborted, TimedOut,
  // PeersEnded.
  virtual void run_single(const Operation& operation, WaitPolicy& policy) = 0;
  // Before an operation that is to be checked: Fault if other ranks called something else. Errors as run_single. Nothing where
  // the operation itself, or what it is made of, compares.
  virtual void compare(const Operation&, WaitPolicy&) {}
  // Throws Aborted when another rank of the run failed.
  virtual void check_abort() const = 0;
  // Memory that a peer may still write or read, to be kept for ever after a failure.
  virtual at::Tensor take_scratch() { return {}; }

  // Runs a task that is no operation, in the order of the calls, and waits for it. What it declines leaves the communicator
  // usable.
  void run_task(const std::function<void(WaitPolicy&)>& task);
  std::chrono::milliseconds timeout() const { return timeout_; }
  CheckMode check() const { return check_; }
  void close() { queue_.close(); }

 private:
  void run(const Operation& operation, WaitPolicy::Style style);
  void run_checked(const Operation& operation, WaitPolicy& policy);
  void run_list(const Operation& operation, WaitPolicy& policy);
  WaitPolicy policy(WaitPolicy::Style style, EndWatch& watch, int64_t begin_ns = 0) const;
  int copy() const { return ring_ ? ring_->copy() : -1; }
  void give_up(const Operation& operation);
  void keep_forever(const Operation& operation);
  std::string names_of(const std::vector<int>& peers) const;
  [[noreturn]] void report(const TimedOut& late, const Operation& operation) const;
  [[noreturn]] void report(const PeersEnded& ended, const Operation& operation) const;

  std::shared_ptr<Ring> ring_;
  std::atomic<CheckMode> check_{CheckMode::first};
  std::atomic<std::chrono::milliseconds> timeout_{kDefaultTimeout};
  Queue queue_;
};

}  // namespace zt::comm
