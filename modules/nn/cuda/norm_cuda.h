// The gradients of a norm on a GPU.
#pragma once

#include <ATen/core/Tensor.h>

namespace zt::nn {

// Writes dx (plus `beside`, if defined), and the gradients of weight and bias into dweight and dbias [1, width] of the wide
// dtype; either may be undefined. These are sums of blocks of rows, and of blocks of those, in a fixed order. stats: a row of 1 /
// deviations and, for LayerNorm, one of means, as the forward wrote them.
void norm_backward_on_gpu(const at::Tensor& dx, const at::Tensor& dweight, const at::Tensor& dbias, const at::Tensor& dy,
                          const at::Tensor& x, const at::Tensor& weight, const at::Tensor& beside, const at::Tensor& stats);

}  // namespace zt::nn
