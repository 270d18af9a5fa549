// reduce_tree.h on the device of the data, with ATen's operators, on the current stream.
#pragma once

#include <ATen/core/Tensor.h>

#include <span>

#include "zt/comm/comm.h"

namespace zt::comm {

// Returns whether device_tree supports the type: as reduce_tree.h, except the maximum and minimum of unsigned integers of 16 bits
// and more, which ATen lacks.
bool is_reducible_on_device(at::ScalarType dtype, ReduceOp op);

// Writes out = T(0, W) of reduce_tree.h over sources, W = sources.size(). out, sources: [n], contiguous, one dtype, one device;
// out may be one of the sources. The bits are those of reduce_tree, except which NaN results, and which of two zeros of different
// sign is the larger. Scratch: at most log2 W + 1 times n elements (of fp32 for 16-bit floats), in the current stream's order.
void device_tree(const at::Tensor& out, std::span<const at::Tensor> sources, ReduceOp op);

}  // namespace zt::comm
