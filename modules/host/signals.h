// Ctrl-C and termination.
#pragma once

namespace zt::host {

enum class Announce { no, yes };

// From here on SIGINT ends the process with status 130 ("interrupted" on stderr with Announce::yes) and SIGTERM with 143,
// whatever its threads are doing. A signal that was ignored at the start (nohup) stays ignored. Call once, before other
// threads start.
void watch_signals(Announce announce);

}  // namespace zt::host
