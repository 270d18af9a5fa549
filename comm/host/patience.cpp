#include "host/patience.h"

#include <sched.h>

#include <algorithm>
#include <thread>

namespace zt::comm {

namespace {

constexpr std::chrono::microseconds kShortestNap(20);
constexpr std::chrono::microseconds kLongestNap(200);
// A peer that computes comes later than this; one that is in the same call answers sooner.
constexpr std::chrono::microseconds kYielding(500);

}  // namespace

Patience::Patience(Style style, std::chrono::milliseconds timeout, std::function<void()> check_abort, int64_t begin_ns)
    : style_(style),
      begin_(begin_ns > 0 ? Clock::time_point(std::chrono::nanoseconds(begin_ns)) : Clock::now()),
      deadline_(begin_ + timeout),
      check_abort_(std::move(check_abort)),
      idle_since_(begin_),
      nap_(kShortestNap) {}

bool Patience::pause() {
  check_abort_();
  const auto now = Clock::now();
  if (now >= deadline_) return false;
  if (style_ == Style::caller && now - idle_since_ < kYielding) {
    sched_yield();
  } else {
    std::this_thread::sleep_for(nap_);
    nap_ = std::min(nap_ * 3 / 2, kLongestNap);
  }
  return true;
}

bool Patience::go_on() const {
  check_abort_();
  return Clock::now() < deadline_;
}

void Patience::progressed() {
  idle_since_ = Clock::now();
  nap_ = kShortestNap;
}

}  // namespace zt::comm
