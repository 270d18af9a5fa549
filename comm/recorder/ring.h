// The last calls of one communicator on one rank.
//
// A ring lies in its rank's black box, which other processes may read at any time: also after the rank was killed.
// Threads: `add` by the rank's thread; `start` and `end` by whichever runs the operation; reading by any.
#pragma once

#include <atomic>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/group.h"
#include "record.h"
#include "shared.h"

namespace zt::comm {

constexpr size_t kRecords = 256;      // that a ring keeps
constexpr size_t kMostMembers = 960;  // of a group that a title names

// Whose calls they are. Plain data.
struct RingTitle {
  std::array<char, 48> axis{};  // cut short
  std::array<char, 16> backend{};
  int32_t size = 0;                           // of the group
  int32_t copy = 0;                           // among this rank's communicators of that name over these ranks
  std::array<int32_t, kMostMembers> ranks{};  // world ranks, in group order; the first ones of a group that is larger
};

// In a black box. All bytes zero: unused.
struct RingMemory {
  enum State : uint64_t { unused, open, closed };
  std::atomic<uint64_t> state;
  std::atomic<uint64_t> added;        // calls so far
  std::atomic<uint64_t> collectives;  // among them
  Shared<RingTitle> title;
  std::array<Shared<Record>, kRecords> records;
};

class Ring {
 public:
  // `memory` lives as long as what `keeper` holds.
  Ring(RingMemory& memory, std::shared_ptr<void> keeper, const Group& group, const std::string& backend, int copy);
  // A ring in memory of its own, which no other rank reads; its copy is -1.
  static std::shared_ptr<Ring> make_private(const Group& group, const std::string& backend);
  ~Ring();
  Ring(const Ring&) = delete;

  int copy() const { return copy_; }
  // Writes down a call as queued. The record holds its number and turn.
  Record add(const Call& call);
  void start(uint64_t number, int64_t now_ns);
  void end(uint64_t number, Stage stage, int64_t now_ns);

 private:
  void change(uint64_t number, size_t time, int64_t now_ns, Stage stage);

  RingMemory& memory_;
  const std::shared_ptr<void> keeper_;
  const int copy_;
  uint64_t added_ = 0, collectives_ = 0;
  std::vector<uint64_t> sends_, receives_;  // by peer
};

}  // namespace zt::comm
