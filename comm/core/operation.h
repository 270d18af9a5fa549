// One call of a communicator as data: what the decorator checked, the queue keeps and a backend runs.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/SmallVector.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "call.h"
#include "group.h"
#include "zt/comm/comm.h"

namespace zt::comm {

// Mostly one tensor, for which no memory is taken.
class Tensors : public c10::SmallVector<at::Tensor, 1> {
 public:
  Tensors() = default;
  Tensors(at::Tensor tensor) { push_back(std::move(tensor)); }  // NOLINT: one tensor is a list of one
  Tensors(const std::vector<at::Tensor>& list)                  // NOLINT: as is a list
      : SmallVector(list.begin(), list.end()) {}
};

// Shapes and in-place rules are those of zt/comm/comm.h. The lists have one tensor except for the list variants, where the
// operation means one call for each. Empty: `in` of broadcast and recv (broadcast's tensor is out), `out` of send, both of
// barrier.
struct Operation {
  Kind kind = Kind::barrier;
  Tensors out = {};  // an entry may be undefined where this rank receives nothing
  Tensors in = {};   // likewise where it gives nothing
  ReduceOp reduce = ReduceOp::sum;
  int peer = -1;                         // the root, or the other side of send and recv
  std::vector<int64_t> out_splits = {};  // all_to_all: elements (not rows) for each rank, filled in
  std::vector<int64_t> in_splits = {};

  // Filled in when it is submitted:
  Call call = {};         // call_of this operation
  uint64_t number = 0;    // among this rank's calls of the communicator, from 0
  uint64_t turn = 0;      // among the collectives, or among the messages to or from that peer: the same on all ranks concerned
  int64_t queued_ns = 0;  // on the steady clock

  // "all_reduce of 1000 float32 (sum)": for messages.
  std::string text(const Group& group) const;
};

Call call_of(const Operation& operation);

}  // namespace zt::comm
