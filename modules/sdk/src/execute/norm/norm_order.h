// The order in which NORM adds squares, on CPUs and GPUs.
#pragma once

#include <cstdint>

#include "zt/base/float16.h"

namespace zt {

inline constexpr int64_t kNormBlock = 256;  // elements whose squares are added in floating point; FlatLayout::kBlock
inline constexpr int kNormLanes = 16;  // lane j sums the squares of elements j, j + 16, ... of a block; then a tree adds lanes

// Returns the sum of a lane of a block of x. Elements outside of [begin, end) count as zeros and are not read.
template <class T>
ZT_PER_ELEMENT double lane_squares(const T* x, int64_t block, int lane, int64_t begin, int64_t end) {
  double sum = 0;
  for (int64_t row = 0; row < kNormBlock / kNormLanes; ++row) {
    const int64_t i = block * kNormBlock + row * kNormLanes + lane;
    const double value = i >= begin && i < end ? static_cast<double>(x[i]) : 0.0;
    sum += value * value;
  }
  return sum;
}

}  // namespace zt
