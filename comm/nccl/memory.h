// Memory that NCCL reaches without a copy (ncclMemAlloc).
#pragma once

#include <ATen/core/Tensor.h>

#include <string>

#include "nccl/api.h"

namespace zt::comm {

// Returns a contiguous tensor on the device of `streams`, zeroed on the current stream. Its last owner retires
// the memory (api.h). Throws Fault, with the bytes that were wanted, if NCCL has too little. `axis` is for the message.
at::Tensor allocate_nccl(const NcclApi& api, const StreamApi& streams, const std::string& axis, at::IntArrayRef shape,
                         at::ScalarType dtype);

}  // namespace zt::comm
