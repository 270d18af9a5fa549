// Handles Ctrl-C, termination, crashes, and SIGUSR1, which asks for a report of what the process is doing.
#pragma once

#include "zt/process/world.h"

namespace zt::host {

enum class Announce { no, yes };

// Installs handlers of these signals. They work whatever the process's threads are doing.
//   SIGINT   ends the process with status 130; Announce::yes also prints "interrupted" on stderr
//   SIGTERM  ends the process with status 143
//   SIGUSR2  ends the process with status 140
//   SIGUSR1  runs the emergency actions; the process continues
//   SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT  print the signal and the stack, and end the process as by default
// Exception: if the run polls is_stop_requested, the first SIGUSR2 only asks it to stop between two steps. Without mpirun the
// same holds for SIGTERM.
// Before the process ends, emergency actions (zt/process/emergency.h) run for at most half a second, or 1 s in a crash.
// A signal that is ignored (nohup) or handled at the time of the call is left alone. Call once, before other threads start.
// `world` is only used in messages.
void watch_signals(Announce announce, const World& world);

}  // namespace zt::host
