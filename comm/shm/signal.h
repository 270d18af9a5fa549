// Numbers that only grow, in memory that processes share, and threads that wait for them: they spin shortly, then sleep in the
// kernel. Nothing here is a lock: a rank that is killed leaves numbers that do not grow, and nobody is stuck beyond its time-out.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>

namespace zt::comm {

// One rank writes it, all may wait for it. Wraps around after 2^32: differences count.
class Signal {
 public:
  uint32_t value() const { return value_.load(std::memory_order_acquire); }
  bool has_reached(uint32_t wanted) const { return static_cast<int32_t>(value() - wanted) >= 0; }
  // What was written before is seen by whoever sees the value.
  void raise(uint32_t value);
  // Sleeps until the value is no longer `seen`, or for about `milliseconds`, or less.
  void sleep(uint32_t seen, int milliseconds);

 private:
  std::atomic<uint32_t> value_{0};
  std::atomic<uint32_t> sleepers_{0};  // one that was killed while it slept only costs needless wake-ups
};

// How long a thread polls before it sleeps: long enough for an answer that is on its way, unless others need the core.
enum class Spin : uint8_t { long_enough, briefly };

// Returns when `signal` has reached `wanted`. `tick` is called every now and then while it sleeps, and may throw to end the wait.
void await(Signal& signal, uint32_t wanted, Spin spin, const std::function<void()>& tick);

}  // namespace zt::comm
