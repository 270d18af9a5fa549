// Large buffers.
#pragma once

#include <ATen/core/Tensor.h>

namespace zt {

// at::zeros for what stays until training ends. On the CPU the kernel is asked for huge pages (madvise): where it has them, it
// supplies memory several times as fast, and passes over it miss fewer addresses.
at::Tensor large_zeros(at::IntArrayRef shape, const at::TensorOptions& options);

}  // namespace zt
