// One Operation as calls of NCCL on a stream.
#pragma once

#include "nccl/api.h"
#include "operation.h"

namespace zt::comm {

// Fault with NCCL's text unless `result` is ncclSuccess.
void check_nccl(const NcclApi& api, ncclResult_t result, const char* doing);

// NCCL's type for adding up; Misuse for what it cannot add (16-bit integers).
ncclDataType_t nccl_type(at::ScalarType dtype);
// bool travels as uint8, where "or" is the maximum and "and" the minimum.
ncclRedOp_t nccl_op(ReduceOp op, at::ScalarType dtype);

// Starts pair `index` of the operation's lists; the caller groups several. Not for a barrier.
void call_nccl(const NcclApi& api, const Operation& operation, size_t index, const Group& group, ncclComm_t comm,
               cudaStream_t stream);

}  // namespace zt::comm
