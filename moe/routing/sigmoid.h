// sigmoid(x) whose bits do not depend on the other elements.
#pragma once

#include <ATen/core/Tensor.h>

namespace zt::moe {

// Returns 1 / (1 + exp(-x)) of each element, with autograd. LibTorch computes the last elements of a tensor by another function
// than the others, so that the bits of a row depend on the number of rows: here all elements are alike. CUDA does so by itself.
at::Tensor sigmoid_by_element(const at::Tensor& x);

}  // namespace zt::moe
