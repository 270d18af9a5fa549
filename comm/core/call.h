// The part of a call that all ranks of a group must agree on: plain data that can be sent, compared and recorded.
#pragma once

#include <c10/core/ScalarType.h>

#include <array>
#include <cstdint>
#include <string>

#include "zt/comm/comm.h"

namespace zt::comm {

struct Group;

enum class CallKind : uint8_t {
  all_reduce,
  reduce_scatter,
  all_gather,
  broadcast,
  reduce,
  gather,
  scatter,
  all_to_all,
  send,
  recv,
  barrier
};

constexpr int kCallKinds = 11;

const char* name_of(CallKind kind);
const char* name_of(ReduceOp op);
// Returns false for send and recv, which involve two ranks only.
inline bool is_collective(CallKind kind) {
  return kind != CallKind::send && kind != CallKind::recv;
}
inline bool is_reduction(CallKind kind) {
  return kind == CallKind::all_reduce || kind == CallKind::reduce_scatter || kind == CallKind::reduce;
}

constexpr size_t kFirstLengths = 4;

struct Call {
  CallKind kind = CallKind::barrier;
  at::ScalarType dtype = at::kByte;
  ReduceOp reduce = ReduceOp::sum;
  int32_t peer = -1;                                   // group rank: the root, or the other side of send and recv
  int32_t tensors = 1;                                 // length of the list; 1 without a list; 0: a message of a channel
  uint32_t lengths = 0;                                // checksum of the tensor lengths of a list; 0 without a list
  std::array<int64_t, kFirstLengths> first_lengths{};  // elements of the first tensors of a list, for error messages
  int64_t count = 0;  // elements, summed over a list, of the tensor that has one length on all ranks; 0 for all_to_all

  bool operator==(const Call&) const = default;
  // Returns "all_reduce of 1024 float32 (sum)", "broadcast of 8 int64 from rank 1" (where `peer_name` is "rank 1"), or for a list
  // "all_reduce of a list of 2 tensors of 4 + 4 float32 (sum)".
  std::string text(const std::string& peer_name) const;
  // As above, with the peer's name in `group`.
  std::string text(const Group& group) const;
};

}  // namespace zt::comm
