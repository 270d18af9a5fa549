// What a process still does when its run fails, crashes or is told to end, or when somebody asks what it is doing (SIGUSR1).
//
// The host notices, modules register what they know: comm reports who waits for whom.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

namespace zt {

struct Emergency {
  enum class Kind : uint8_t { failed, crashed, told_to_end, asked };
  Kind kind = Kind::failed;
  int rank = -1;       // world rank it happened to; -1: all ranks of this process
  std::string reason;  // "rank 1 failed: the disk is full", "SIGTERM"
};

// Actions may run on any thread, while all others go on, one emergency at a time. What they wait for needs an end: half a second
// when told to end, after which the process is gone, and a second or two otherwise. They stay registered for the life of the
// process; what they throw is ignored.
void at_emergency(std::function<void(const Emergency&)> action);
void run_emergency_actions(const Emergency& emergency);

}  // namespace zt
