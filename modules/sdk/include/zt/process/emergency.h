// Callbacks for a run that fails, crashes or is told to end, and for a user who asks what the process is doing (SIGUSR1).
//
// Modules register callbacks, the host detects the emergency and runs them. For example, comm reports which rank waits for which.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

namespace zt {

struct Emergency {
  // exited: the script called os.exit with a status other than 0. It prints what there is to say itself.
  enum class Kind : uint8_t { failed, crashed, exited, told_to_end, asked };
  Kind kind = Kind::failed;
  int rank = -1;       // world rank that failed; -1: all ranks of this process
  std::string reason;  // "rank 1 failed: the disk is full", "status 3", "SIGTERM"
};

// Registers a callback for the life of the process. Callbacks run on any thread, while all other threads go on, and for one
// emergency at a time. They must bound every wait: the process ends half a second after it was told to end; in the other cases
// they have one or two seconds. A std::exception that they throw is ignored.
void at_emergency(std::function<void(const Emergency&)> action);
// Runs all callbacks, in the order of their registration. Waits first while another thread runs them.
void run_emergency_actions(const Emergency& emergency);

}  // namespace zt
