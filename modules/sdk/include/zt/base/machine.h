// A process reads here its machine's name, how much host memory it has, and its environment variables.
#pragma once

#include <cstdint>
#include <string>

namespace zt {

// Bytes; -1: not known, or without a limit.
struct MachineMemory {
  int64_t whole = -1;  // that the machine has, or the control group of this process (a container, a job) may use
  int64_t free = -1;   // of these that no process uses
  int64_t limit = -1;  // that this process may still reserve (ulimit -v)
  // "17.6 GiB of 23.4 GiB are free on this machine; this process may use 1.2 GiB more (ulimit -v)"
  std::string text() const;
};

// Reads proc, the control groups of this process and all above them (versions 1 and 2), and the limits of this process. `root`:
// the folder of proc and sys, which tests change.
MachineMemory machine_memory(const std::string& root = "");

// Returns the machine's name in its network; empty if it has none.
std::string machine_name();

// Returns the value that the environment variable had when this process started; null: it was not set. Thread-safe, unlike
// std::getenv, which can crash while another thread, such as MPI's, sets a variable.
const char* environment(const char* name);

}  // namespace zt
