// Large buffers.
#pragma once

#include <ATen/core/Tensor.h>

namespace zt {

// Returns zeros as at::zeros does, for tensors that live until training ends. On the CPU it asks the kernel for huge pages
// (madvise). Where these are available, the kernel supplies memory several times as fast, and loops over it have fewer TLB
// misses.
at::Tensor large_zeros(at::IntArrayRef shape, const at::TensorOptions& options);

}  // namespace zt
