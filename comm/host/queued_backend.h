// What the backends in host memory share: the queue, time-outs, lists, and errors that tell the whole story.
#pragma once

#include <atomic>
#include <memory>

#include "backend.h"
#include "host/queue.h"

namespace zt::comm {

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
  // One blocking operation on one tensor or pair of tensors, checked. Errors: Fault, Aborted, TimedOut.
  virtual void run_single(const Operation& operation, Patience& patience) = 0;
  // Before an operation that is to be checked: Fault if other ranks called something else. Errors as run_single. Nothing where
  // the operation itself, or what it is made of, compares.
  virtual void compare(const Operation&, Patience&) {}
  // Throws Aborted when another rank of the run failed.
  virtual void check_abort() const = 0;
  // Memory that a peer may still write or read, to be kept for ever after a failure.
  virtual at::Tensor take_scratch() { return {}; }

  // Runs a task that is no operation, in the order of the calls, and waits for it.
  void run_task(const std::function<void(Patience&)>& task);
  std::chrono::milliseconds timeout() const { return timeout_; }
  CheckMode check() const { return check_; }
  void close() { queue_.close(); }

 private:
  void run(const Operation& operation, Patience::Style style);
  void run_checked(const Operation& operation, Patience& patience);
  void run_list(const Operation& operation, Patience& patience);
  Patience patience(Patience::Style style, int64_t begin_ns = 0) const;
  void keep_forever(const Operation& operation);
  std::string names_of(const std::vector<int>& peers) const;
  [[noreturn]] void report(const std::vector<int>& peers, const Operation& operation) const;

  std::shared_ptr<Ring> ring_;
  std::atomic<CheckMode> check_{CheckMode::first};
  std::atomic<std::chrono::milliseconds> timeout_{kDefaultTimeout};
  Queue queue_;
};

}  // namespace zt::comm
