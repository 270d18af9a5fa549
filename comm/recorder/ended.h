// Finds ranks whose scripts have ended although other ranks still wait for them.
#pragma once

#include <chrono>
#include <cstdint>
#include <vector>

#include "core/group.h"
#include "core/operation.h"
#include "flight.h"

namespace zt::comm {

// Thrown by waits that can never succeed. OperationRunner turns it into a Fault with the details.
struct PeersEnded {
  std::vector<int> peers;  // group ranks whose scripts have ended
};

// Returns whether the rank of `flight`, whose script has ended, has done its part of a call, or still may because its
// communicator is open. `call` and `turn` are those of rank group.rank. `copy` is the communicator's, as in RingTitle.
bool may_complete(const Flight& flight, const Group& group, int copy, const Call& call, uint64_t turn);

// Looks for such ranks during one wait. It reads in the flight record of an ended rank what the rank did, so a rank that ended
// after its last call does not end the wait. It sees threads of this process and processes of this machine.
class EndWatch {
 public:
  // copy: of the communicator, as in RingTitle; below 0 means that the communicator is not recorded. operation: null means that
  // the wait is not for an operation. `group` and `operation` must outlive the object.
  EndWatch(const Group& group, int copy, const Operation* operation) : group_(group), copy_(copy), operation_(operation) {}

  // Throws PeersEnded if a rank that the wait needs has ended. Takes about 20 us per rank of the group, so call it only a few
  // times per second.
  void look();

 private:
  bool is_needed(int peer) const;

  const Group& group_;
  const int copy_;
  const Operation* const operation_;
  // When a rank was first found to have ended. Used if no record tells what the rank did.
  std::chrono::steady_clock::time_point suspected_{};
};

}  // namespace zt::comm
