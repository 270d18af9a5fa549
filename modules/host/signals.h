// Ctrl-C, termination, crashes, and the question what the process is doing.
#pragma once

#include "zt/process/world.h"

namespace zt::host {

enum class Announce { no, yes };

// From here on, whatever the process's threads are doing:
//   SIGINT   ends it with status 130 ("interrupted" on stderr with Announce::yes), SIGTERM with 143, SIGUSR2 with 140
//   SIGUSR2, and SIGTERM without mpirun, once: asks a run to stop by itself where one listens (is_stop_requested), instead
//   SIGUSR1  runs the emergency actions, and it goes on
//   SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT  print what happened where, and end it as they do without us
// Emergency actions (zt/process/emergency.h) run before an end, for half a second at most, for a second in a crash. A signal that
// was ignored at the start (nohup) stays ignored, one that somebody else handles stays theirs. Call once, before other threads
// start. `place`: for messages.
void watch_signals(Announce announce, const World& place);

}  // namespace zt::host
