// The ranks of one communicator in shared memory: the notices in which they announce operations, their waits for each other, and
// the stages (buffers) through which private tensors travel.
//
// A collective operation: each rank writes its Notice and calls `enter`, which returns when all ranks have entered. From then on
// all ranks may read all notices. A rank that reads other ranks' buffers calls `leave` afterwards, which returns when all ranks
// have left. A rank has two notices and uses them in turns, so operation n + 2 overwrites the notice of n. No rank starts n + 2
// before all ranks have entered n + 1, and at that point all are done with the notices of n.
//
// Threads: one at a time. Errors: Fault if the process of a rank is gone or a rank announced another operation; TimedOut,
// PeersEnded, Aborted.
#pragma once

#include <sys/types.h>

#include <array>
#include <memory>
#include <vector>

#include "core/call.h"
#include "core/group.h"
#include "queue/signal.h"
#include "queue/wait_policy.h"
#include "shm/shared_memory.h"

namespace zt::comm {

constexpr size_t kInlineBytes = 2048;              // bytes of data that travel in the notice itself
constexpr size_t kStageBytes = size_t{512} << 10;  // bytes per stage; a rank has two
constexpr size_t kLaneBytes = size_t{128} << 10;   // bytes per stage of a lane, which has two

// A place in a window of a rank. window -1 means private memory, which other ranks cannot read.
struct SharedPlace {
  int32_t window = -1;
  int64_t offset = 0;
};

struct Notice {
  Call call;
  SharedPlace in, out;
  bool is_inline = false;                           // all_to_all only: the data that this rank gives is in `data`
  alignas(16) std::array<char, kInlineBytes> data;  // only the bytes that the operation needs are valid
};

// The published state of one rank. Only that rank writes it.
struct alignas(64) Board {
  alignas(64) Signal entered;  // number of the last operation that this rank has entered
  alignas(64) Signal left;     // number of the last operation that this rank has left
  alignas(64) Signal staged;   // chunks that this rank has staged, over all operations
  alignas(64) Signal reduced;  // chunks that this rank has reduced or read, over all operations
  alignas(64) pid_t process = 0;
  std::array<Notice, 2> notices;
};

// One direction between two ranks. The receiver writes `taken`, the sender everything else.
struct alignas(64) PairLane {
  alignas(64) Signal sent;   // chunks put into the stages
  alignas(64) Signal taken;  // chunks taken out of the stages
  // Describe the whole message and are valid from its first chunk on. A message in a window is one chunk.
  Call call;
  SharedPlace place;
};

class Team {
 public:
  // Returns the bytes of shared memory that a team of `size` ranks needs. Pages that are never used are never allocated.
  static size_t bytes_for(int size);

  // Requires `memory` to be the same shared memory on all ranks, zeroed. Collective.
  Team(Group group, std::shared_ptr<SharedMemory> memory, WaitPolicy& policy);
  ~Team();
  Team(const Team&) = delete;

  const Group& group() const { return group_; }
  int rank() const { return group_.rank; }
  int size() const { return group_.size(); }

  // Sets how the next operations wait. `policy` must live until the next call.
  void set_wait_policy(WaitPolicy& policy);

  Notice& my_notice() { return board(rank()).notices[(operation_ + 1) % 2]; }
  const Notice& notice(int rank) const { return board(rank).notices[operation_ % 2]; }
  // Announces the operation of my_notice() and waits until all ranks have announced theirs. Throws Fault if they differ.
  void enter();
  // Announces that this rank is done with the other ranks' buffers and waits until all ranks are.
  void leave();

  // Chunks of private buffers are counted over the team's life. Chunk i lies in stage i % 2.
  uint32_t next_chunk() const { return chunks_; }
  void count_chunks(uint32_t chunks) { chunks_ += chunks; }
  char* stage(int rank, uint32_t chunk) const;
  void raise_staged(uint32_t chunk) { board(rank()).staged.raise(chunk + 1); }
  void raise_reduced(uint32_t chunk) { board(rank()).reduced.raise(chunk + 1); }
  void await_staged(uint32_t chunk) { await_all(&Board::staged, chunk + 1); }
  void await_reduced(uint32_t chunk) { await_all(&Board::reduced, chunk + 1); }

  PairLane& lane(int from, int to) const;
  char* lane_stage(int from, int to, uint32_t chunk) const;
  void await_peer(Signal& signal, uint32_t wanted, int peer);

 private:
  Board& board(int rank) const;
  void await_all(Signal Board::*signal, uint32_t wanted);
  void check_calls() const;
  // Throws if the process of `peer` has ended before `signal` reached `wanted`.
  void check_alive(int peer, const Signal& signal, uint32_t wanted) const;

  const Group group_;
  const std::shared_ptr<SharedMemory> memory_;
  std::vector<int> processes_;  // pidfd per rank, which tells whether the process lives; -1: this process, or unknown
  uint32_t operation_ = 0;      // number of the last operation entered
  uint32_t chunks_ = 0;
  Spin spin_ = Spin::briefly;
  WaitPolicy* policy_ = nullptr;
};

}  // namespace zt::comm
