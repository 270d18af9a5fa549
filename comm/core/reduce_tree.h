// Reduces the contributions of the ranks along a fixed binary tree, so that sums have the same bits on every backend.
#pragma once

#include <c10/core/ScalarType.h>

#include <cstdint>
#include <span>

#include "zt/comm/comm.h"

namespace zt::comm {

// Returns whether reduce_tree supports the type: float64, float32, float16, bfloat16, the integers of 8 to 64 bits, bool.
bool is_reducible(at::ScalarType dtype);

// Returns true for float16 and bfloat16, which are accumulated in fp32.
inline bool is_half_width(at::ScalarType dtype) {
  return dtype == at::kHalf || dtype == at::kBFloat16;
}

// Writes out[i] = T(0, W) for W = sources.size(), where T(a, a + 1) = sources[a][i] and T(a, b) = T(a, m) op T(m, b), m = a + the
// largest power of two below b - a. 16-bit floats are widened to fp32 and rounded once at the end. Integers wrap. For bool, sum
// and max are "or", product and min are "and". The max or min of a NaN and anything is NaN. The bits are the same on every CPU.
// `out` may be one of the sources. Each source is read once. Throws Misuse for other types, unless there is only one source.
void reduce_tree(at::ScalarType dtype, ReduceOp op, void* out, std::span<const void* const> sources, int64_t count);

}  // namespace zt::comm
