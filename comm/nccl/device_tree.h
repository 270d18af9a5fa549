// reduce_tree.h where the data is: by ATen's operators, on the current stream.
#pragma once

#include <ATen/core/Tensor.h>

#include <span>

#include "zt/comm/comm.h"

namespace zt::comm {

// Whether device_tree knows the type: those of reduce_tree.h, but no maximum or minimum of unsigned integers of 16 bits and more,
// which ATen does not have.
bool is_reducible_on_device(at::ScalarType dtype, ReduceOp op);

// out = T(0, W) of reduce_tree.h over sources, W = sources.size(). out, sources: [n], contiguous, one dtype, one device; out may
// be one of the sources. Bits as reduce_tree's, but for which NaN comes out and which of two zeros of different sign is the
// larger. Scratch: at most log2 W + 1 times n elements (of fp32 for 16-bit floats), in the current stream's order.
void device_tree(const at::Tensor& out, std::span<const at::Tensor> sources, ReduceOp op);

}  // namespace zt::comm
