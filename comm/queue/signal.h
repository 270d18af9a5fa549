// Counters that only grow, in shared memory or that of one process, and waits for them. A waiting thread spins for a short time,
// then sleeps in the kernel. There are no locks: if a rank is killed, its counters stop growing, and the waits for them end with
// their timeouts.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>

#include "wait_policy.h"

namespace zt::comm {

// A counter that all ranks may wait for. It wraps around after 2^32, so values are compared by difference.
class Signal {
 public:
  uint32_t value() const { return value_.load(std::memory_order_acquire); }
  bool has_reached(uint32_t wanted) const { return static_cast<int32_t>(value() - wanted) >= 0; }
  // Sets the value; only one rank does. A thread that sees the new value also sees everything that was written before it.
  void raise(uint32_t value);
  // Adds one; any rank may. Likewise.
  void advance();
  // Sleeps while the value is `seen`, for about 20 ms at most. May return early.
  void sleep(uint32_t seen);

 private:
  void wake();

  std::atomic<uint32_t> value_{0};
  std::atomic<uint32_t> sleepers_{0};  // too high after a sleeping rank was killed, which only costs needless wake-ups
};

// How long a thread polls before it sleeps. long_enough: for an answer that is on its way. briefly: others need the core.
enum class Spin : uint8_t { long_enough, briefly };

// Tells how many ranks the run of this process has on this machine; 1 until then. Thread-safe.
void set_ranks_here(int ranks);
// Returns long_enough if the waiting thread has nothing else to do, and this machine has a core for each rank.
Spin spin_for(WaitPolicy::Style style);

// Polls for a short time. Returns whether `signal` has reached `wanted`.
bool poll(const Signal& signal, uint32_t wanted, Spin spin);

// Returns when `signal` has reached `wanted`. Calls `tick` about every 20 ms while it sleeps; `tick` may throw to end the wait.
void await(Signal& signal, uint32_t wanted, Spin spin, const std::function<void()>& tick);

}  // namespace zt::comm
