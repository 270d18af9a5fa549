// The ranks of one communicator in shared memory: what each announces to the others, how they wait for each other, and the memory
// through which private buffers travel.
//
// An operation of all ranks: each rank writes a Notice and `enter`s; when all have entered, everybody reads everybody's notice;
// who reads other ranks' buffers `leave`s afterwards, and returns to the caller when all have left. Two notices alternate: that
// of operation n is written again in n + 2, which nobody enters before all entered n + 1, so before all are done with n's.
//
// Threads: one at a time. Errors: Fault for a rank that is gone or announced another operation, TimedOut, PeersEnded, Aborted.
#pragma once

#include <sys/types.h>

#include <array>
#include <memory>
#include <span>
#include <vector>

#include "core/call.h"
#include "core/group.h"
#include "messages/wait_policy.h"
#include "shm/shared_memory.h"
#include "shm/signal.h"

namespace zt::comm {

constexpr size_t kInlineBytes = 2048;                // data that travels in the notice itself
constexpr size_t kStageBytes = size_t{512} << 10;    // of one of a rank's two stages
constexpr size_t kChannelBytes = size_t{128} << 10;  // of one of the two stages between a pair of ranks

// A place in a rank's windows; window -1: private memory, which others cannot reach.
struct SharedPlace {
  int32_t window = -1;
  int64_t offset = 0;
};

struct Notice {
  Call call;
  SharedPlace in, out;
  bool is_inline = false;                           // of an all_to_all: what this rank gives is in `data`
  alignas(16) std::array<char, kInlineBytes> data;  // the first bytes are valid, as many as the operation needs
};

// What a rank shows to the others. Written by that rank alone.
struct alignas(64) Board {
  alignas(64) Signal entered;  // operations entered
  alignas(64) Signal left;     // operations whose shared part is done
  alignas(64) Signal staged;   // pieces put into the stages, over all operations
  alignas(64) Signal reduced;  // pieces whose own part is added up
  alignas(64) pid_t process = 0;
  std::array<Notice, 2> notices;
};

// Between a sender and a receiver. `sent` is the sender's, `taken` the receiver's.
struct alignas(64) Channel {
  alignas(64) Signal sent;   // pieces put into the stages
  alignas(64) Signal taken;  // pieces taken out
  // Of the whole message, from its first piece on; a message in a window is one piece.
  Call call;
  SharedPlace place;
};

class Team {
 public:
  // Bytes of the memory that a team of `size` ranks meets in; pages that are not used are never there.
  static size_t bytes_for(int size);

  // `memory` is one piece of shared memory, zeroed, the same for all ranks. Collective.
  Team(Group group, std::shared_ptr<SharedMemory> memory, WaitPolicy& policy);
  ~Team();
  Team(const Team&) = delete;

  const Group& group() const { return group_; }
  int rank() const { return group_.rank; }
  int size() const { return group_.size(); }

  // How to wait from now on; it must live until the next call of this.
  void set_wait_policy(WaitPolicy& policy);

  Notice& my_notice() { return board(rank()).notices[(operation_ + 1) % 2]; }
  const Notice& notice(int rank) const { return board(rank).notices[operation_ % 2]; }
  // Announces the operation that my_notice() describes and waits until all ranks have announced theirs. Fault if they differ.
  void enter();
  void leave();

  // Pieces of private buffers: stage `piece % 2`, counted over the team's life.
  uint32_t next_piece() const { return pieces_; }
  void count_pieces(uint32_t pieces) { pieces_ += pieces; }
  char* stage(int rank, uint32_t piece) const;
  void raise_staged(uint32_t piece) { board(rank()).staged.raise(piece + 1); }
  void raise_reduced(uint32_t piece) { board(rank()).reduced.raise(piece + 1); }
  void await_staged(uint32_t piece) { await_all(&Board::staged, piece + 1); }
  void await_reduced(uint32_t piece) { await_all(&Board::reduced, piece + 1); }

  Channel& channel(int from, int to) const;
  char* channel_stage(int from, int to, uint32_t piece) const;
  void await_peer(Signal& signal, uint32_t wanted, int peer);

 private:
  Board& board(int rank) const;
  void await_all(Signal Board::*signal, uint32_t wanted);
  void check_calls() const;
  // Throws unless the process of `peer` lives or has raised the signal before it ended.
  void check_alive(int peer, const Signal& signal, uint32_t wanted) const;

  const Group group_;
  const std::shared_ptr<SharedMemory> memory_;
  std::vector<int> processes_;  // descriptors that tell whether a rank's process lives; -1: of this process, or unknown
  uint32_t operation_ = 0;      // the last one entered
  uint32_t pieces_ = 0;
  Spin spin_ = Spin::briefly;
  bool has_cores_ = false;  // a core for each rank
  WaitPolicy* policy_ = nullptr;
};

}  // namespace zt::comm
