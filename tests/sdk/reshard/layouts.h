// The usual ways to divide a tensor among ranks.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "sdk/reshard/random_regions.h"
#include "zt/reshard/region.h"

namespace zt::test {

// Returns `ranks` flat ranges of equal size; the last ones are shorter or empty.
inline std::vector<Region> flat(const std::vector<int64_t>& shape, int64_t ranks) {
  const int64_t numel = *numel_of(shape), chunk = (numel + ranks - 1) / ranks;
  std::vector<Region> regions;
  for (int64_t r = 0; r < ranks; ++r) {
    const int64_t first = std::min(numel, r * chunk);
    regions.push_back({{{std::vector<int64_t>(shape.size(), 0), shape}}, first, std::min(chunk, numel - first)});
  }
  return regions;
}

// Divides a tensor into equal boxes along a dim.
inline std::vector<Region> along(const std::vector<int64_t>& shape, size_t dim, int64_t ranks) {
  std::vector<Region> regions;
  for (int64_t r = 0; r < ranks; ++r) {
    Box box{std::vector<int64_t>(shape.size(), 0), shape};
    box.begin[dim] = shape[dim] * r / ranks;
    box.end[dim] = shape[dim] * (r + 1) / ranks;
    const int64_t count = box.numel();
    regions.push_back({{std::move(box)}, 0, count});
  }
  return regions;
}

// Divides a matrix [3 * width, columns] of queries, keys and values. A rank has some rows of each of the three.
inline std::vector<Region> fused(int64_t width, int64_t columns, int64_t ranks) {
  std::vector<Region> regions(ranks);
  for (int64_t r = 0; r < ranks; ++r) {
    for (int64_t part = 0; part < 3; ++part)
      regions[r].boxes.push_back({{part * width + width * r / ranks, 0}, {part * width + width * (r + 1) / ranks, columns}});
    regions[r].count = 3 * width / ranks * columns;
  }
  return regions;
}

// Divides each of the regions into `ranks` flat ranges.
inline std::vector<Region> cut(const std::vector<Region>& regions, int64_t ranks) {
  std::vector<Region> parts;
  for (const Region& region : regions) {
    for (int64_t r = 0; r < ranks; ++r) {
      const int64_t first = region.count * r / ranks;
      parts.push_back({region.boxes, first, region.count * (r + 1) / ranks - first});
    }
  }
  return parts;
}

}  // namespace zt::test
