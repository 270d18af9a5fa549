// The last calls of one communicator on one rank.
//
// A ring lies in its rank's black box, which other processes may read at any time, even after the rank was killed.
// Threads: the rank's thread calls `add`; the thread that runs the operation calls `start` and `end`; any thread may read.
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "core/group.h"
#include "core/operation.h"
#include "flight.h"
#include "shared.h"

namespace zt::comm {

constexpr size_t kRecords = 256;      // records per ring
constexpr size_t kMostMembers = 960;  // ranks of a group that a title can name

// Names the communicator of a ring. Plain data.
struct RingTitle {
  std::array<char, 48> axis{};  // truncated
  std::array<char, 16> backend{};
  int32_t size = 0;                           // of the group
  int32_t copy = 0;                           // index among this rank's communicators of that name over these ranks
  std::array<int32_t, kMostMembers> ranks{};  // world ranks, in group order; the first ones of a larger group
};

// A ring in a black box. All bytes zero means unused.
struct RingMemory {
  enum State : uint64_t { unused, open, closed };
  std::atomic<uint64_t> state;
  std::atomic<uint64_t> added;        // calls so far
  std::atomic<uint64_t> collectives;  // collectives among them
  Shared<RingTitle> title;
  std::array<Shared<CallRecord>, kRecords> records;
};

class Ring {
 public:
  // `keeper` keeps `memory` alive.
  Ring(RingMemory& memory, std::shared_ptr<void> keeper, const Group& group, const std::string& backend, int copy);
  // Makes a ring in private memory, which no other rank reads. Its copy is -1.
  static std::shared_ptr<Ring> make_private(const Group& group, const std::string& backend);
  ~Ring();
  Ring(const Ring&) = delete;

  int copy() const { return copy_; }
  // Records a call as queued. Returns the record, which holds the call's number and turn.
  CallRecord add(const Call& call);
  void start(uint64_t number, int64_t now_ns);
  void end(uint64_t number, CallStage stage, int64_t now_ns);

 private:
  void change(uint64_t number, size_t time, int64_t now_ns, CallStage stage);

  RingMemory& memory_;
  const std::shared_ptr<void> keeper_;
  const int copy_;
  uint64_t added_ = 0, collectives_ = 0;
  std::vector<uint64_t> sends_, receives_;  // by peer
};

// Records the call of the operation in `ring` as queued, and gives the operation its number, turn and time.
void record_call(Ring& ring, Operation& operation);

}  // namespace zt::comm
