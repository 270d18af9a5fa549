// How a thread waits for other ranks: it polls, and each pause between two polls is a little longer.
#pragma once

#include <chrono>
#include <functional>
#include <vector>

namespace zt::comm {

// Thrown by waits. OperationRunner turns it into a Fault with the details.
struct TimedOut {
  std::vector<int> peers;  // group ranks that the wait was for
};

class WaitPolicy {
 public:
  // caller: the thread has nothing else to do, so it yields for a while before it sleeps. background: a compute thread needs the
  // core, so it sleeps at once.
  enum class Style { caller, background };

  // check_abort: called at every poll; throws to end the wait at once.
  // begin_ns: when the wait began, on the steady clock; 0 means now.
  // look: called a few times per second during a wait; may throw to end it; may be empty.
  WaitPolicy(Style style, std::chrono::milliseconds timeout, std::function<void()> check_abort, int64_t begin_ns = 0,
             std::function<void()> look = {});

  // Pauses after a poll that found nothing. Returns false once the time is up.
  [[nodiscard]] bool pause();
  // Makes the pauses short again after a poll that found something. The deadline stays.
  void progressed();

  // As `pause`, without the pause: for waits that sleep in another way.
  [[nodiscard]] bool go_on();
  Style style() const { return style_; }
  // Returns when the wait began, on the steady clock.
  int64_t begin_ns() const { return begin_.time_since_epoch() / std::chrono::nanoseconds(1); }

 private:
  using Clock = std::chrono::steady_clock;
  bool is_in_time(Clock::time_point now);

  const Style style_;
  const Clock::time_point begin_, deadline_;
  const std::function<void()> check_abort_, look_;
  Clock::time_point idle_since_, next_look_;
  std::chrono::microseconds nap_;
};

}  // namespace zt::comm
