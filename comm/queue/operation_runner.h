// Runs the operations of one communicator or channel: records them, gives their waits an end, and turns failures into Faults that
// say which operation failed and for which ranks it waited.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "recorder/ended.h"
#include "wait_policy.h"
#include "zt/base/error.h"

namespace zt::comm {

// Thrown by a task on all ranks if one of them cannot take part. Nothing was changed, and the communicator stays usable.
class Declined : public Fault {
 public:
  using Fault::Fault;
};

// Threads: one operation or task at a time, on any thread. Errors: Fault and Aborted.
class OperationRunner {
 public:
  virtual ~OperationRunner() = default;

 protected:
  using Body = std::function<void(WaitPolicy&)>;

  virtual const Group& group() const = 0;
  virtual const std::string& backend_name() const = 0;
  // Throws to end a wait, for example Aborted if another rank of the run failed.
  virtual void check_wait() const = 0;
  // Gives up memory that a peer may still write or read after a failure, so that it is kept for ever.
  virtual at::Tensor take_scratch() { return {}; }

  // Calls `body` and records when it began and ended. It may throw Fault, Aborted, TimedOut and PeersEnded.
  void run_operation(const Operation& operation, WaitPolicy::Style style, const Body& body);
  // Calls `body`, which is no operation. It may also throw Declined.
  void run_task(WaitPolicy::Style style, const Body& body) const;

  std::shared_ptr<Ring> ring_;  // may be null
  std::atomic<std::chrono::milliseconds> timeout_{kDefaultTimeout};

 private:
  WaitPolicy policy(WaitPolicy::Style style, EndWatch& watch, int64_t begin_ns = 0) const;
  int copy() const { return ring_ ? ring_->copy() : -1; }
  void run_explained(const Operation& operation, WaitPolicy& policy, const Body& body) const;
  void give_up(const Operation& operation);
  void keep_forever(const Operation& operation);
  std::string names_of(const std::vector<int>& peers) const;
  [[noreturn]] void report(const TimedOut& late, const Operation& operation) const;
  [[noreturn]] void report(const PeersEnded& ended, const Operation& operation) const;
};

}  // namespace zt::comm
