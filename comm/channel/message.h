// The types and shapes of the tensors of a channel's message as plain words, and the places of their data.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <vector>

namespace zt::comm {

// For each tensor the type, whether it is on the CPU, and the number of dimensions, followed by the sizes; or -1 for an undefined
// tensor.
using MessageShapes = std::vector<int64_t>;

MessageShapes shapes_of(std::span<const at::Tensor> tensors);
// Returns new tensors of these types and shapes, with undefined contents, on the device or the CPU.
std::vector<at::Tensor> make_tensors(const MessageShapes& shapes, at::Device device);

// Returns `bytes` rounded up, so that the next tensor begins on a cache line.
inline size_t whole_lines(size_t bytes) {
  return (bytes + 63) / 64 * 64;
}

// Calls visit(tensor, offset) for each tensor with data. Offsets count the bytes before it, in whole cache lines. Returns the
// bytes of all tensors.
template <class Visit>
size_t for_each_place(std::span<const at::Tensor> tensors, Visit visit) {
  size_t offset = 0;
  for (const at::Tensor& tensor : tensors) {
    if (!tensor.defined() || tensor.nbytes() == 0) continue;
    visit(tensor, offset);
    offset += whole_lines(tensor.nbytes());
  }
  return offset;
}

}  // namespace zt::comm
