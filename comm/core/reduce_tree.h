// Adding up the ranks' contributions in the order that NUMERICS promises.
#pragma once

#include <c10/core/ScalarType.h>

#include <cstdint>
#include <span>

#include "zt/comm/comm.h"

namespace zt::comm {

// Whether reduce_tree knows the type: float64, float32, float16, bfloat16, the integers of 8 to 64 bits, bool.
bool is_reducible(at::ScalarType dtype);

// float16 and bfloat16, which are added up in fp32.
inline bool is_half_width(at::ScalarType dtype) {
  return dtype == at::kHalf || dtype == at::kBFloat16;
}

// out[i] = T(0, W) for W = sources.size(), where T(a, a + 1) = sources[a][i] and T(a, b) = T(a, m) op T(m, b), m = a + the
// largest power of two below b - a. 16-bit floats are widened to fp32 and rounded once at the end; integers wrap; bool: sum and
// max are "or", product and min "and"; the max or min of a NaN and anything is NaN. The same bits on every CPU.
// out may be one of the sources. Each source is read once.
void reduce_tree(at::ScalarType dtype, ReduceOp op, void* out, std::span<const void* const> sources, int64_t count);

}  // namespace zt::comm
