// The order in which NORM adds squares, on CPUs and GPUs.
#pragma once

#include <cstdint>

namespace zt {

inline constexpr int64_t kNormBlock = 256;  // elements whose squares are added in floating point; FlatLayout::kBlock
inline constexpr int kNormLanes = 16;  // lane j sums the squares of elements j, j + 16, ... of a block; then a tree adds lanes

}  // namespace zt
