#include "wait_policy.h"

#include <sched.h>

#include <algorithm>
#include <thread>

namespace zt::comm {

namespace {

constexpr std::chrono::microseconds kShortestNap(20);
constexpr std::chrono::microseconds kLongestNap(200);
// How long a caller yields before it sleeps: a peer in the same call answers sooner, a peer that computes takes longer.
constexpr std::chrono::microseconds kYielding(500);
constexpr std::chrono::milliseconds kBetweenLooks(250);

}  // namespace

WaitPolicy::WaitPolicy(Style style, std::chrono::milliseconds timeout, std::function<void()> check_abort, int64_t begin_ns,
                       std::function<void()> look)
    : style_(style),
      begin_(begin_ns > 0 ? Clock::time_point(std::chrono::nanoseconds(begin_ns)) : Clock::now()),
      deadline_(begin_ + timeout),
      check_abort_(std::move(check_abort)),
      look_(std::move(look)),
      idle_since_(begin_),
      next_look_(begin_ + kBetweenLooks),
      nap_(kShortestNap) {}

bool WaitPolicy::pause() {
  check_abort_();
  const auto now = Clock::now();
  if (!is_in_time(now)) return false;
  if (style_ == Style::caller && now - idle_since_ < kYielding) {
    sched_yield();
  } else {
    std::this_thread::sleep_for(nap_);
    nap_ = std::min(nap_ * 3 / 2, kLongestNap);
  }
  return true;
}

bool WaitPolicy::go_on() {
  check_abort_();
  return is_in_time(Clock::now());
}

bool WaitPolicy::is_in_time(Clock::time_point now) {
  if (look_ && now >= next_look_) {
    next_look_ = now + kBetweenLooks;
    look_();
  }
  return now < deadline_;
}

void WaitPolicy::progressed() {
  idle_since_ = Clock::now();
  nap_ = kShortestNap;
}

}  // namespace zt::comm
