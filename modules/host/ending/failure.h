// Ends the process, and reports the failure of a run.
#pragma once

#include <chrono>
#include <string>

#include "zt/process/world.h"

namespace zt::host {

// Prints `text` on stderr, unless another rank of this machine has already reported the same `message`, or has reported it as its
// own where this rank tells of "rank 1 of 'dp' failed: ...". Under mpirun, then waits 200 ms so that ranks that failed at the
// same time can print their reports. Thread-safe.
void report_once(const World& world, const std::string& message, const std::string& text);

// Ends the process after all that it has to do: flushes buffered files, and destroys no static objects, as LibTorch takes a tenth
// of a second for its own.
[[noreturn]] void leave_process(int status);

// Flushes buffered files and ends the process without unwinding, at once. mpirun then ends the ranks that wait for this one.
[[noreturn]] void end_process(int status);

// Returns at once. Ends the process with `status` if it still runs after `limit`.
void end_process_within(std::chrono::milliseconds limit, int status);

}  // namespace zt::host
