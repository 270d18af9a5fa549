// A part of a logical tensor, as ranks hold it and shards store it.
#pragma once

#include <cstdint>
#include <vector>

#include "zt/box.h"

namespace zt::ckpt {

// The boxes concatenated row-major, of which [first, first + count) is meant.
struct Region {
  std::vector<Box> boxes;
  int64_t first = 0;
  int64_t count = 0;
};

}  // namespace zt::ckpt
