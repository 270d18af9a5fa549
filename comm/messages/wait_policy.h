// How a thread waits for other ranks: it polls, and between two polls pauses a little longer each time.
#pragma once

#include <chrono>
#include <functional>

namespace zt::comm {

class WaitPolicy {
 public:
  // caller: nothing else to do, yields the core for a while before it sleeps. background: a compute thread wants the core.
  enum class Style { caller, background };

  // `aborted` throws when the wait is to end at once.
  // begin_ns: when the wait began, on the steady clock; 0: now.
  // look: called a few times per second during a wait, also throws to end it; may be empty.
  WaitPolicy(Style style, std::chrono::milliseconds timeout, std::function<void()> check_abort, int64_t begin_ns = 0,
             std::function<void()> look = {});

  // Between two polls that found nothing. False once the time is up.
  [[nodiscard]] bool pause();
  // A poll found something: pauses start short again. The deadline stays.
  void progressed();

  // For waits that sleep in another way: throws when the wait is to end at once; false once the time is up.
  [[nodiscard]] bool go_on();
  Style style() const { return style_; }
  // When it began, on the steady clock.
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
