// Tensors as text, in PyTorch's format: tensor([[1., 2.], [3., 4.]], dtype=torch.float64).
#pragma once

#include <ATen/core/Tensor.h>

#include <string>

namespace zt::lua {

// Returns the text of a tensor. Above 1000 elements it has only the first and last three of each dim. The dtype is left out for
// float32, int64 and bool. Complex numbers are pairs. Sparse and quantized tensors have the format of LibTorch's C++.
std::string tensor_text(const at::Tensor& tensor);

}  // namespace zt::lua
