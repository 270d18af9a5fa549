// One call of a communicator as data. CheckedCommunicator makes it, a queue may hold it, a backend runs it.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/SmallVector.h>

#include <cstdint>
#include <utility>
#include <vector>

#include "call.h"
#include "zt/comm/comm.h"

namespace zt::comm {

// A list of tensors. A list of one, the usual case, allocates no memory.
class Tensors : public c10::SmallVector<at::Tensor, 1> {
 public:
  Tensors() = default;
  Tensors(at::Tensor tensor) { push_back(std::move(tensor)); }  // NOLINT: an implicit conversion on purpose
  Tensors(const std::vector<at::Tensor>& list)                  // NOLINT: likewise
      : SmallVector(list.begin(), list.end()) {}
};

// Shapes and in-place rules are those of zt/comm/comm.h. `out` and `in` hold one tensor each. In a list operation they hold
// several, and the result is that of one call per pair. `in` is empty for broadcast and recv (the tensor of broadcast is `out`),
// `out` is empty for send, and both are empty for barrier.
struct Operation {
  CallKind kind = CallKind::barrier;
  Tensors out = {};  // an entry may be undefined if this rank receives nothing
  Tensors in = {};   // an entry may be undefined if this rank gives nothing
  ReduceOp reduce = ReduceOp::sum;
  int peer = -1;                         // the root, or the other side of send and recv
  std::vector<int64_t> out_splits = {};  // all_to_all: elements (not rows) per rank; never empty
  std::vector<int64_t> in_splits = {};

  // Filled in by CheckedCommunicator when it submits the operation:
  Call call = {};       // call_of this operation
  uint64_t number = 0;  // index among this rank's calls of the communicator
  uint64_t turn = 0;    // index among the collectives, or among the sends to (receives from) `peer`; equal on all ranks involved
  int64_t queued_ns = 0;  // time of the call, on the steady clock
};

Call call_of(const Operation& operation);

}  // namespace zt::comm
