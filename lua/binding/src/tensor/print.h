// Tensors as text, in the form in which PyTorch prints them: tensor([[1., 2.], [3., 4.]], dtype=torch.float64).
#pragma once

#include <ATen/core/Tensor.h>

#include <string>

namespace zt::lua {

// Above 1000 elements only the first and last three of each dim are shown. float32, int64 and bool need no dtype.
// Complex tensors are shown as pairs; sparse and quantized ones as LibTorch's C++ prints them.
std::string tensor_text(const at::Tensor& tensor);

}  // namespace zt::lua
