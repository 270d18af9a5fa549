// The common part of the backends in host memory: the queue, timeouts, lists, and the texts of errors.
#pragma once

#include <atomic>
#include <memory>

#include "core/backend.h"
#include "queue.h"
#include "recorder/ended.h"
#include "zt/base/error.h"

namespace zt::comm {

struct TimedOut;

// Thrown by a task on all ranks if one of them cannot take part. Nothing was changed, and the communicator stays usable.
class Declined : public Fault {
 public:
  using Fault::Fault;
};

// Invariant: after a Fault every later operation fails with the same Fault and touches no memory.
// A subclass must call `close` in its destructor, because the tasks use its members.
class QueuedBackend : public Backend {
 public:
  std::optional<at::Device> device() const override { return at::kCPU; }
  Work submit(Operation operation, Async async) override;
  void set_timeout(std::chrono::milliseconds timeout) override { timeout_ = timeout; }
  void set_check(CheckMode mode) override { check_ = mode; }
  void drain() override { queue_.drain(); }
  void record_in(std::shared_ptr<Ring> ring) override { ring_ = std::move(ring); }

 protected:
  // Runs one blocking operation on one checked tensor or pair of tensors. Errors: Fault, Aborted, TimedOut, PeersEnded.
  virtual void run_single(const Operation& operation, WaitPolicy& policy) = 0;
  // Compares the calls of all ranks before an operation (see CheckMode). Throws Fault if another rank called something else;
  // other errors as run_single. The default does nothing, for backends whose operations compare by themselves.
  virtual void compare(const Operation&, WaitPolicy&) {}
  // Throws Aborted if another rank of the run failed.
  virtual void check_abort() const = 0;
  // Gives up memory that a peer may still write or read after a failure, so that it is kept for ever.
  virtual at::Tensor take_scratch() { return {}; }

  // Runs a task that is not an Operation, in the order of the calls, and waits for it. After Declined the communicator stays
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
