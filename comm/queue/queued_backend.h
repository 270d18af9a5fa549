// The common part of the backends in host memory: the queue, timeouts, lists, and the texts of errors.
#pragma once

#include <atomic>
#include <memory>

#include "backend/backend.h"
#include "operation_runner.h"
#include "queue.h"

namespace zt::comm {

// Invariant: after a Fault every later operation fails with the same Fault and touches no memory.
// A subclass must call `close` in its destructor, because the tasks use its members.
class QueuedBackend : public Backend, protected OperationRunner {
 public:
  const Group& group() const override = 0;
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

  // Runs a task that is not an Operation, in the order of the calls, and waits for it. After Declined the communicator stays
  // usable.
  void run_in_turn(const Body& task);
  std::chrono::milliseconds timeout() const { return timeout_; }
  CheckMode check() const { return check_; }
  void close() { queue_.close(); }

 private:
  const std::string& backend_name() const final { return name(); }
  void check_wait() const final;
  void run(const Operation& operation, WaitPolicy::Style style);
  void run_list(const Operation& operation, WaitPolicy& policy);

  std::atomic<CheckMode> check_{CheckMode::first};
  Queue queue_;
};

}  // namespace zt::comm
