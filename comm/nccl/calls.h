// One Operation as calls of NCCL on a stream.
#pragma once

#include "core/operation.h"
#include "nccl/api.h"

namespace zt::comm {

// Where calls go: a communicator and the stream they are put on. Faults are NCCL's.
struct NcclSite {
  const NcclApi& api;
  const StreamApi& streams;
  const Group& group;
  ncclComm_t comm;
  c10::Stream stream;

  cudaStream_t native() const { return streams.native(stream); }
  // What only moves data moves bytes: any type, also those that NCCL does not know.
  void send(const void* data, size_t bytes, int peer) const;
  void recv(void* data, size_t bytes, int peer) const;
  // out: W * bytes. In place iff in is this rank's part of out.
  void all_gather(void* out, const void* in, size_t bytes) const;

  // The calls that `make` makes start as one. One that fails leaves no group open, which would keep back what this thread calls
  // on other communicators.
  template <class Make>
  void together(const Make& make) const {
    check_nccl(api, api.group_start(), "group_start");
    try {
      make();
    } catch (...) {
      api.group_end();
      throw;
    }
    check_nccl(api, api.group_end(), "group_end");
  }
};

// NCCL's type for adding up; Misuse for what it cannot add (16-bit integers).
ncclDataType_t nccl_type(at::ScalarType dtype);
// bool travels as uint8, where "or" is the maximum and "and" the minimum.
ncclRedOp_t nccl_op(ReduceOp op, at::ScalarType dtype);

// Starts an operation: reductions as NCCL does them, in an order of its own; the pairs of a list together. Not for a barrier.
void call_nccl(const NcclSite& site, const Operation& operation);

}  // namespace zt::comm
