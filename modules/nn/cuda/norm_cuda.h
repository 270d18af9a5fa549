// The gradients of a norm on a GPU.
#pragma once

#include <ATen/core/Tensor.h>

namespace zt::nn {

// Writes dx, the gradient of x plus `beside` if that is defined. Writes the gradients of weight and bias to dweight and dbias [1,
// width] of the wide dtype; either may be undefined. They are sums over blocks of rows, then over blocks of these sums, in a
// fixed order. stats: the statistics that the forward wrote: a row of 1 / deviation and, for LayerNorm, a row of means.
void norm_backward_on_gpu(const at::Tensor& dx, const at::Tensor& dweight, const at::Tensor& dbias, const at::Tensor& dy,
                          const at::Tensor& x, const at::Tensor& weight, const at::Tensor& beside, const at::Tensor& stats);

}  // namespace zt::nn
