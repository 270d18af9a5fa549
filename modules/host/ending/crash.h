// Signals that a process raises by its own fault, such as SIGSEGV.
#pragma once

#include "zt/process/world.h"

namespace zt::host {

// Installs handlers of SIGSEGV, SIGBUS, SIGFPE, SIGILL and SIGABRT. A handler prints the signal and the stack, calls `wake`, and
// waits up to 1 s until another thread has run run_crash_actions. Then the signal ends the process as it does by default.
// `wake` must be async-signal-safe.
void watch_crashes(const World& world, void (*wake)());

// Runs the emergency actions if another thread crashed.
void run_crash_actions();

}  // namespace zt::host
