// Converts 16-bit floats to fp32 and back, with the bits of reduce_tree.h. (at::Tensor::copy_ makes bfloat16 NaNs 0xFFFF.)
#pragma once

#include <ATen/core/Tensor.h>

namespace zt::comm {

// Writes `half` to `wide`. wide: float32, contiguous. half: as many elements of float16 or bfloat16, contiguous. No overlap.
void widen(const at::Tensor& wide, const at::Tensor& half);
// Writes `wide` to `half`, rounded to nearest even.
void narrow(const at::Tensor& half, const at::Tensor& wide);

}  // namespace zt::comm
