// Ranks whose scripts have ended although other ranks still wait for them.
#pragma once

#include <chrono>
#include <cstdint>
#include <vector>

#include "core/group.h"
#include "core/operation.h"
#include "flight.h"

namespace zt::comm {

// Group ranks that a wait can never reach. Thrown by waits, made a Fault that tells the whole story by QueuedBackend.
struct PeersEnded {
  std::vector<int> peers;
};

// Returns whether the rank of `flight`, whose script has ended, did its part of a call or still may: its communicator is open.
// The call is number `turn` of the `copy`-th communicator over `group`, as the rank `group.rank` called it.
bool may_complete(const Flight& flight, const Group& group, int copy, const Call& call, uint64_t turn);

// Looks for such ranks during one wait. What a rank did before it ended is read from its flight record, so ranks that end after
// their last call disturb nobody. Sees threads of this process, and processes of this machine.
class EndWatch {
 public:
  // copy: of the communicator, as in RingTitle; below 0: it is not recorded. operation: null where the wait is no operation.
  // Both references live as long as the object.
  EndWatch(const Group& group, int copy, const Operation* operation) : group_(group), copy_(copy), operation_(operation) {}

  // Throws PeersEnded. Takes about 20 us per rank of the group: to be called a few times per second.
  void look();

 private:
  bool is_needed(int peer) const;

  const Group& group_;
  const int copy_;
  const Operation* const operation_;
  // Where no record tells what a rank did: since when it has been known that a rank has ended.
  std::chrono::steady_clock::time_point suspected_{};
};

}  // namespace zt::comm
