// Regions of a tensor as boxes of it.
#pragma once

#include <cstdint>
#include <vector>

#include "region.h"

namespace zt::ckpt {

// A box of the tensor, row-major, is the elements [place, place + box.numel()) of a region.
struct PlacedBox {
  Box box;
  int64_t place = 0;
};

// The region [first, first + count) of a tensor as boxes of its own N dims, in the region's order, none of them empty: at most
// 2 x rank - 1 for each box of the region. A tensor without dims is one box without dims.
std::vector<PlacedBox> region_boxes(const std::vector<int64_t>& shape, const Region& region);

}  // namespace zt::ckpt
