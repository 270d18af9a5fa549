// NCCL's communicator of one rank, its stream, and what was put there.
#pragma once

#include <chrono>
#include <deque>
#include <memory>
#include <string>

#include "core/backend.h"
#include "nccl/api.h"
#include "nccl/calls.h"

namespace zt::comm {

// An operation on the stream.
struct StartedOperation {
  const uint64_t number, turn;  // as in Operation
  const Call call;
  const std::shared_ptr<void> event;  // complete when the operation is
  Stage stage = Stage::running;       // as far as the host has looked
};

// Shared by the backend and its works; outlives the backend while a work is held.
//
// Invariants: 1. There is one stream: what was started is complete in that order. 2. What is running is in outstanding_, oldest
// first, and nothing else is. 3. The first failure aborts NCCL's communicator, which ends its kernels that wait for a peer: what
// was running has failed, and `check_usable` throws from then on. Threads: the rank's. Errors: Fault.
class Link {
 public:
  // Collective over the group; the same id on all ranks.
  static std::shared_ptr<Link> connect(const NcclApi& api, std::shared_ptr<const StreamApi> streams, Group group,
                                       const ncclUniqueId& id);
  // Collective over this link's group: the ranks that give one color make a group, in the order of group.rank.
  std::shared_ptr<Link> split(int color, Group group) const;
  Link(const NcclApi& api, std::shared_ptr<const StreamApi> streams, Group group, ncclComm_t comm);
  // Waits a short grace for what is running, then ends it.
  ~Link();
  Link(const Link&) = delete;

  const Group& group() const { return group_; }
  const NcclApi& api() const { return api_; }
  const std::shared_ptr<const StreamApi>& streams() const { return streams_; }
  NcclSite site() const { return {api_, *streams_, group_, comm_, stream_}; }
  std::chrono::milliseconds timeout() const { return timeout_; }
  void set_timeout(std::chrono::milliseconds timeout) { timeout_ = timeout; }
  void record_in(std::shared_ptr<Ring> ring) { ring_ = std::move(ring); }

  // Fault if the communicator failed.
  void check_usable() const;
  // Makes the stream wait for what the current one has to do first, and says in the ring that the operation runs.
  void begin(const Operation& operation);
  // What the stream has to do now is the operation.
  std::shared_ptr<StartedOperation> add(const Operation& operation);
  // The operation failed before it was added.
  void refuse(const Operation& operation);
  // Looks what is complete; true if nothing runs any more.
  bool poll();

  bool is_over(const StartedOperation& started);
  // The current stream waits; the host waits, for at most the time-out.
  void wait(const StartedOperation& started) const;
  void finish(const StartedOperation& started);
  void drain();

  // What runs ends in this stage. The first reason stays.
  void fail(const std::string& why, Stage stage = Stage::failed);

 private:
  void end_oldest(Stage stage);
  void note_end(uint64_t number, Stage stage) const;
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
