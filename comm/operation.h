// One call of a communicator as data: what the decorator checked, the queue keeps and a backend runs.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "group.h"
#include "zt/comm.h"

namespace zt::comm {

enum class Kind : uint8_t {
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

const char* name_of(Kind kind);
const char* name_of(ReduceOp op);

// Shapes and in-place rules are those of zt/comm.h. The lists have one tensor except for the list variants, where the operation
// means one call for each. Empty: `in` of broadcast and recv (broadcast's tensor is out), `out` of send, both of barrier.
struct Operation {
  Kind kind = Kind::barrier;
  std::vector<at::Tensor> out = {};  // an entry may be undefined where this rank receives nothing
  std::vector<at::Tensor> in = {};   // likewise where it gives nothing
  ReduceOp reduce = ReduceOp::sum;
  int peer = -1;                         // the root, or the other side of send and recv
  std::vector<int64_t> out_splits = {};  // all_to_all: elements (not rows) for each rank, filled in
  std::vector<int64_t> in_splits = {};

  const at::Tensor& any() const;  // a tensor that is there; undefined for a barrier
  // "all_reduce (sum of float32[1000])": for messages.
  std::string text(const Group& group) const;
};

}  // namespace zt::comm
