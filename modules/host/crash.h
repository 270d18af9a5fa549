// Signals by which a process dies of its own doing.
#pragma once

#include "zt/process/world.h"

namespace zt::host {

// From here on SIGSEGV, SIGBUS, SIGFPE, SIGILL and SIGABRT print what happened and the stack, call `wake`, leave another thread a
// moment for `answer_crash`, and then end the process as they do without us. `wake` may only do what a signal handler may.
void watch_crashes(const World& place, void (*wake)());

// Runs the emergency actions if the process crashed: on a thread that did not.
void answer_crash();

}  // namespace zt::host
