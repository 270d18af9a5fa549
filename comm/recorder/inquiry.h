// What the verdict is found from: the ranks' records sorted by communicator.
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
  std::vector<const Track*> tracks;  // beside ranks; nullptr: nothing is known of that rank
};

// A rank that is in a call, and the ranks that have not come to it.
struct Wait {
  const Members* members = nullptr;
  const Record* record = nullptr;
  int rank = 0;
  std::vector<int> missing;
  std::vector<int> unknown;  // of whom nothing was recorded there
};

// Whether a rank has come to the collective, or to its side of the message with `peer`: calls that it has queued after others do
// not count. Calls older than its records are over.
bool has_come(const Track& track, const Call& call, uint64_t turn, int peer);
// Whether it has also done its part. True where the records do not reach back that far.
bool has_finished(const Track& track, const Call& call, uint64_t turn, int peer);

class Inquiry {
 public:
  // Keeps pointers into `flights`.
  explicit Inquiry(const std::vector<Flight>& flights);

  const std::vector<Members>& communicators() const { return communicators_; }
  const std::vector<Wait>& waits() const { return waits_; }
  const Flight* flight(int rank) const;
  double seconds_since(int rank, int64_t then_ns) const;

  // "all_reduce of 8 float32 (sum)"
  std::string what(const Members& members, const Record& record) const;
  // "operation 3 on axis dp", "message 3 on axis pp"
  std::string where(const Members& members, const Record& record) const;
  // Both: "all_reduce of 8 float32 (sum), operation 3 on axis dp"
  std::string call_text(const Members& members, const Record& record) const;
  // Says why a rank did not come: "its process is gone", "its process is stopped", "it waits in ...", "its last call
  // was ..., 2.1 s ago".
  std::string status(int rank) const;

 private:
  void find_waits();
  void find_missing(Wait& wait, int rank) const;

  std::map<int, const Flight*> flights_;
  std::vector<Members> communicators_;
  std::vector<Wait> waits_;
};

// "rank 3", "ranks 0-2 and 5"
std::string ranks_text(std::vector<int> ranks);

}  // namespace zt::comm
