// 16-bit floats as fp32 and back, with the bits of reduce_tree.h. (at::Tensor::copy_ gives bfloat16 NaNs other bits, 0xFFFF.)
#pragma once

#include <ATen/core/Tensor.h>

namespace zt::comm {

// The first is written. wide: float32, contiguous; half: as many elements of float16 or bfloat16, contiguous; not overlapping.
void widen(const at::Tensor& wide, const at::Tensor& half);
// Rounds to nearest even.
void narrow(const at::Tensor& half, const at::Tensor& wide);

}  // namespace zt::comm
