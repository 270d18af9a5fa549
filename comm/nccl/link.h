// One rank's NCCL communicator, its stream, and the operations on that stream.
#pragma once

#include <chrono>
#include <deque>
#include <memory>
#include <string>

#include "backend/backend.h"
#include "nccl/api.h"
#include "nccl/calls.h"

namespace zt::comm {

// An operation that was put on the stream.
struct StartedOperation {
  const uint64_t number, turn;  // as in Operation
  const Call call;
  const std::shared_ptr<void> event;     // complete when the operation is
  CallStage stage = CallStage::running;  // when the host last looked
};

// Shared by the backend and its Work objects, so it lives as long as one of them.
//
// Invariants: 1. There is one stream, so operations complete in the order in which they were started. 2. outstanding_ holds
// exactly the running operations, oldest first. 3. The first failure aborts NCCL's communicator, which ends its kernels that wait
// for a peer. The running operations then have failed, and `check_usable` throws from then on.
//
// Threads: the rank's. Errors: Fault.
class Link {
 public:
  // Makes the communicator of `group`. Collective over the group, with the same id on all ranks.
  static std::shared_ptr<Link> connect(const NcclApi& api, std::shared_ptr<const StreamApi> streams, Group group,
                                       const ncclUniqueId& id);
  Link(const NcclApi& api, std::shared_ptr<const StreamApi> streams, Group group, ncclComm_t comm);
  // Waits a short time for the running operations, then aborts them. Retires the communicator if none is left.
  ~Link();
  Link(const Link&) = delete;

  const Group& group() const { return group_; }
  const NcclApi& api() const { return api_; }
  const std::shared_ptr<const StreamApi>& streams() const { return streams_; }
  NcclSite site() const { return {api_, *streams_, group_, comm_, stream_}; }
  std::chrono::milliseconds timeout() const { return timeout_; }
  void set_timeout(std::chrono::milliseconds timeout) { timeout_ = timeout; }
  void record_in(std::shared_ptr<Ring> ring) { ring_ = std::move(ring); }

  // Throws Fault if the communicator failed.
  void check_usable() const;
  // Makes the stream wait for the present work of the current stream, and records the start of the operation.
  void begin(const Operation& operation);
  // Adds the operation, whose work has just been put on the stream, to the running ones.
  std::shared_ptr<StartedOperation> add(const Operation& operation);
  // Records that the operation failed before it was added.
  void refuse(const Operation& operation);
  // Looks which operations are complete. Returns true if none is running any more.
  bool poll();

  // Returns whether the operation is complete or has failed.
  bool is_over(const StartedOperation& started);
  // Makes the current stream wait for the operation.
  void wait(const StartedOperation& started) const;
  // Makes the host wait for the operation, for at most the timeout.
  void finish(const StartedOperation& started);
  // Makes the host wait for all operations.
  void drain();

  // Aborts the communicator. The running operations end in `stage`. Only the first reason is kept.
  void fail(const std::string& why, CallStage stage = CallStage::failed);

 private:
  void end_oldest(CallStage stage);
  void note_end(uint64_t number, CallStage stage) const;
  void check_peers(const StartedOperation& started);
  std::string where(const StartedOperation& started) const;
  [[noreturn]] void fail_with(const std::string& why);
  [[noreturn]] void time_out(const StartedOperation& started);

  const NcclApi api_;
  const std::shared_ptr<const StreamApi> streams_;
  const c10::Stream stream_;
  const Group group_;
  ncclComm_t comm_;  // null after a failure
  std::chrono::milliseconds timeout_ = kDefaultTimeout;
  std::shared_ptr<Ring> ring_;  // may be null
  std::deque<std::shared_ptr<StartedOperation>> outstanding_;
  std::string failure_;
};

}  // namespace zt::comm
