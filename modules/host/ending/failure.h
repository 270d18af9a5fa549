// Reports the failure of a run, and ends the process.
#pragma once

#include <chrono>
#include <string>

#include "zt/process/world.h"

namespace zt::host {

// Prints `text` on stderr, unless another rank of this machine has already reported the same `message`, or has reported it as its
// own where this rank tells of "rank 1 of 'dp' failed: ...". Under mpirun, then waits 200 ms so that ranks that failed at the
// same time can print their reports. Thread-safe.
void report_once(const World& world, const std::string& message, const std::string& text);

// Flushes buffered files and ends the process without unwinding. mpirun then ends the ranks that wait for this one.
[[noreturn]] void end_process(int status);

// Returns at once. Ends the process with `status` if it still runs after `limit`.
void end_process_within(std::chrono::milliseconds limit, int status);

}  // namespace zt::host
