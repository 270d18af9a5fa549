// Moves the elements of a plan's rounds.
#pragma once

#include <exception>
#include <functional>
#include <string>
#include <vector>

#include "transfer_ends.h"

namespace zt {

// The first failure of a rank that must go on taking part in what ranks do together.
class FirstFailure {
 public:
  // Calls `body` unless a call has failed before.
  void attempt(const std::function<void()>& body);
  // Throws on all ranks if one of them has failed: there its own error, on the others a Misuse with its text. Collective.
  void share(Communicator* control) const;

 private:
  std::exception_ptr first_;
};

struct MovedBytes {
  int64_t sent = 0, local = 0;
};

// `ends`: of the plan's lanes. `comm`: over the ranks of the plan; null for a plan without communication. What fails on this rank
// only is noted in `failure`. Collective over `comm`. Throws Fault if a peer is gone.
MovedBytes move_rounds(const TransferPlan& plan, const std::vector<TransferEnds>& ends, Communicator* comm,
                       FirstFailure& failure);

}  // namespace zt
