// How a run that failed tells the user, and ends.
#pragma once

#include <chrono>
#include <string>

#include "zt/process/world.h"

namespace zt::host {

// Prints `text` on stderr, unless another rank has printed or prints a text with the same `key`: then waits for a moment,
// so that the other's text gets out, and returns. Thread-safe.
void report_once(const World& world, const std::string& key, const std::string& text);

// Writes out buffered files and ends the process without unwinding: the ranks that wait for this one are ended by mpirun.
[[noreturn]] void end_process(int status);

// Ends the process with `status` after `limit` if it has not ended by then.
void end_process_within(std::chrono::milliseconds limit, int status);

}  // namespace zt::host
