// Runs one Operation as calls of NCCL on a stream.
#pragma once

#include "core/group.h"
#include "core/operation.h"
#include "nccl/api.h"

namespace zt::comm {

// The communicator and the stream of NCCL calls. Errors: Fault with NCCL's text.
struct NcclSite {
  const NcclApi& api;
  const StreamApi& streams;
  const Group& group;
  ncclComm_t comm;
  c10::Stream stream;

  cudaStream_t native() const { return streams.native(stream); }
  // These three move bytes, so they also serve types that NCCL does not know.
  void send(const void* data, size_t bytes, int peer) const;
  void recv(void* data, size_t bytes, int peer) const;
  // out: W * bytes. In place iff in is this rank's part of out.
  void all_gather(void* out, const void* in, size_t bytes) const;

  // Starts the calls that `make` makes as one NCCL group. If a call fails, the group is closed: an open group would hold back
  // this thread's calls on other communicators.
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

// Returns NCCL's type for a reduction. Throws Misuse for a type that NCCL cannot reduce (16-bit integers).
ncclDataType_t nccl_type(at::ScalarType dtype);
// Returns NCCL's operator. bool travels as uint8, where "or" is the maximum and "and" the minimum.
ncclRedOp_t nccl_op(ReduceOp op, at::ScalarType dtype);

// Starts any operation but a barrier. Reductions add in NCCL's own order. The pairs of a list start together.
void call_nccl(const NcclSite& site, const Operation& operation);

}  // namespace zt::comm
