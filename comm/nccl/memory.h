// Memory that NCCL reaches without a copy (ncclMemAlloc).
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <string>

#include "nccl/api.h"

namespace zt::comm {

// A contiguous tensor of zeros on the device of `streams`, zeroed on the current stream. Its memory goes back to NCCL with its
// last owner, after the host waited for the device. Fault, with the bytes that were wanted, if NCCL has none. `axis`: for the
// message.
at::Tensor allocate_nccl(const NcclApi& api, std::shared_ptr<const StreamApi> streams, const std::string& axis,
                         at::IntArrayRef shape, at::ScalarType dtype);

}  // namespace zt::comm
