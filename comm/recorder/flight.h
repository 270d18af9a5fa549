// What the black box of one rank says: plain data, from memory or from a file of an earlier run.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "record.h"

namespace zt::comm {

// One communicator of a rank.
struct Track {
  std::string axis, backend;
  int copy = 0;            // among the rank's communicators of that name over these ranks
  std::vector<int> ranks;  // world ranks, in group order
  uint64_t collectives = 0;
  bool is_open = true;          // false: the rank will make no call any more
  std::vector<Record> records;  // the last ones, ascending
};

struct Flight {
  int rank = 0, world_size = 1, process = 0;
  bool is_alive = true;        // its process, when this was read
  bool is_stopped = false;     // by SIGSTOP, Ctrl-Z or a debugger, when this was read
  std::string end;             // why it ends: "its script has ended", "failed: the disk is full"; empty: it does not
  int64_t read_ns = 0;         // when this was read, on the machine's steady clock
  int64_t unix_offset_ns = 0;  // what makes times of the steady clock Unix times
  std::vector<Track> tracks;
};

}  // namespace zt::comm
