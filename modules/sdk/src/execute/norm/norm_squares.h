// What the two ways to sum squares share.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "zt/model/unit.h"

namespace zt {

inline constexpr int kNormLanes = 16;  // lane j sums the squares of elements j, j + 16, ... of a block
inline constexpr int kNormBlock = FlatLayout::kBlock;

// Throws Misuse unless a norm may be taken of elements [begin, end) of `flat`.
void check_squares(const at::Tensor& flat, int64_t begin, int64_t end);

}  // namespace zt
