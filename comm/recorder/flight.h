// The flight recorder's record of one call of a communicator, and the contents of one rank's black box as plain data, read from
// memory or from a file of an earlier run.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "core/call.h"

namespace zt::comm {

// timed_out: the rank gave up waiting for the others.
enum class CallStage : uint64_t { queued, running, done, failed, timed_out };
constexpr int kCallStages = 5;

const char* name_of(CallStage stage);

// Plain data, in memory that other processes read. Times are those of the machine's steady clock; 0 means not yet.
struct CallRecord {
  uint64_t number = 0;  // as in Operation
  uint64_t turn = 0;
  Call call;
  CallStage stage = CallStage::queued;
  int64_t queued_ns = 0, started_ns = 0, ended_ns = 0;
  std::array<char, 40> activity{};  // current_activity() of the calling thread, truncated: "REDUCE_GRAD 3"
};

// One communicator of a rank.
struct Track {
  std::string axis, backend;
  int copy = 0;                     // index among the rank's communicators of that name over these ranks
  std::vector<int> ranks;           // world ranks, in group order
  uint64_t collectives = 0;         // collectives called so far
  bool is_open = true;              // false: the communicator is closed, so the rank makes no more calls on it
  std::vector<CallRecord> records;  // the last calls, oldest first
};

struct Flight {
  int rank = 0, world_size = 1, process = 0;
  bool is_alive = true;        // whether the process existed at read_ns
  bool is_stopped = false;     // whether the process was stopped (SIGSTOP, Ctrl-Z, a debugger) at read_ns
  std::string end;             // why the rank ends: "its script has ended", "its script failed (...)"; empty: it has not ended
  int64_t read_ns = 0;         // when the box was read, on the machine's steady clock
  int64_t unix_offset_ns = 0;  // added to a time of the steady clock, gives the Unix time
  std::vector<Track> tracks;
};

}  // namespace zt::comm
