// Small helpers on tensors that several modules need.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>

#include <string>
#include <string_view>

namespace zt {

// Returns the dtype of a name that PyTorch prints ("float32", "bfloat16", "int64"), or of "float", "double", "half", "int" or
// "long". Throws Misuse, with the nearest name, if the name is unknown.
at::ScalarType parse_dtype(std::string_view name);
std::string dtype_name(at::ScalarType dtype);

// Returns dtype, shape and device for messages: "float32[4, 128] on cpu".
std::string describe(const at::Tensor& tensor);

// Returns the bytes of one element.
inline int64_t size_of(at::ScalarType type) {
  return static_cast<int64_t>(c10::elementSize(type));
}

// Returns "3.2 MiB": the unit is a power of 1024, with one decimal below 100 of it. Below 1 KiB: "640 B".
std::string human_bytes(int64_t bytes);

// Returns whether the host's loops compute on the tensor: it lies in host memory, or on a device that was named to
// let_host_compute_on.
bool is_for_host(const at::Tensor& tensor);
// Lets the host's loops compute on tensors of this type of device, whose memory the host must reach. For devices without code of
// their own, such as the one with which tests stand in for a GPU.
void let_host_compute_on(at::DeviceType type);

// Returns zeros as at::zeros does, for tensors that live until training ends. On the CPU it asks the kernel for huge pages
// (madvise). Where these are available, the kernel supplies memory several times as fast, and loops over it have fewer TLB
// misses.
at::Tensor large_zeros(at::IntArrayRef shape, const at::TensorOptions& options);

}  // namespace zt
