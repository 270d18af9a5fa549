// Small helpers on tensors that several modules need.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <string_view>

namespace zt {

// "float32", "bfloat16", "int64": the names PyTorch prints. Misuse with the nearest name if unknown; "float",
// "double", "half", "int", "long" are accepted too.
at::ScalarType parse_dtype(std::string_view name);
std::string dtype_name(at::ScalarType dtype);

// "float32[4, 128] on cpu": for messages.
std::string describe(const at::Tensor& tensor);

// "3.2 MiB": three digits and a unit of 1024.
std::string human_bytes(int64_t bytes);

// 64-bit FNV-1a of the bytes: a cheap fingerprint for logs and tests. Needs a contiguous CPU tensor.
uint64_t fingerprint(const at::Tensor& tensor);

}  // namespace zt
