// Prepares the verdict: groups the ranks' records by communicator and finds the waits in them.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "flight.h"

namespace zt::comm {

// One communicator as all its ranks recorded it.
struct Members {
  std::string axis;
  std::vector<int> ranks;            // world ranks, in group order
  std::vector<const Track*> tracks;  // one per entry of `ranks`; null means that the rank has no record of this communicator
};

// A rank that is in a call, and the ranks that have not made that call.
struct Wait {
  const Members* members = nullptr;
  const CallRecord* record = nullptr;
  int rank = 0;              // world rank, as are the following
  std::vector<int> missing;  // ranks that have not made the call
  std::vector<int> unknown;  // ranks of which there is no flight
};

// Returns whether a rank has come to the collective, or to its side of the message with group rank `peer`. A call that is queued
// behind others does not count. A collective older than the records counts.
bool has_come(const Track& track, const Call& call, uint64_t turn, int peer);
// Returns whether the rank has also done its part. True if the records do not reach back that far.
bool has_finished(const Track& track, const Call& call, uint64_t turn, int peer);

class Inquiry {
 public:
  // `flights` must outlive the object, which keeps pointers into it.
  explicit Inquiry(const std::vector<Flight>& flights);

  const std::vector<Members>& communicators() const { return communicators_; }
  const std::vector<Wait>& waits() const { return waits_; }
  const Flight* flight(int rank) const;
  double seconds_since(int rank, int64_t then_ns) const;

  // Returns "all_reduce of 8 float32 (sum)".
  std::string what(const Members& members, const CallRecord& record) const;
  // Returns "operation 3 on axis dp" or "message 3 on axis pp".
  std::string where(const Members& members, const CallRecord& record) const;
  // Returns both: "all_reduce of 8 float32 (sum), operation 3 on axis dp".
  std::string call_text(const Members& members, const CallRecord& record) const;
  // Returns why a rank has not made a call: "its process is gone", "its process is stopped", "it is in barrier, ...", "its last
  // call was ..., done 2.1 s ago".
  std::string status(int rank) const;

 private:
  void find_waits();
  void find_missing(Wait& wait, int rank) const;

  std::map<int, const Flight*> flights_;
  std::vector<Members> communicators_;
  std::vector<Wait> waits_;
};

// Returns "rank 3" or "ranks 0-2 and 5".
std::string ranks_text(std::vector<int> ranks);

}  // namespace zt::comm
