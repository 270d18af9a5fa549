// Regions: parts of a tensor, as a rank or a file holds them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "zt/base/box.h"

namespace zt {

// A part of a tensor: elements [first, first + count) of the boxes' elements, concatenated, each box row-major. The boxes
// of one region do not overlap.
struct Region {
  std::vector<Box> boxes;
  int64_t first = 0;
  int64_t count = 0;

  bool operator==(const Region&) const = default;
};

// Returns the number of elements; nullopt if a size is negative or the strides exceed 64 bits.
std::optional<int64_t> numel_of(const std::vector<int64_t>& shape);

// Returns an error text for a region of a tensor of this shape; empty if the region is valid. Call it for regions that come from
// outside: the other functions require valid ones. It does not check that boxes do not overlap.
std::string validate_region(const std::vector<int64_t>& shape, const Region& region);

// Returns the region of all elements. Throws Misuse if 64 bits cannot count them.
Region whole_region(const std::vector<int64_t>& shape);

// A box within a region: its element i in row-major order is element place + i of the region.
struct PlacedBox {
  Box box;
  int64_t place;
};

// Returns a region as whole boxes, in the region's order. None is empty. There are at most 2 * (rank - 1) more than the region
// has boxes, where `rank` is the tensor's number of dims.
std::vector<PlacedBox> region_boxes(const Region& region);

// True if two boxes of one tensor share an element. Empty boxes (begin = end in some dim) share none.
bool overlaps(const Box& a, const Box& b);
Box intersection(const Box& a, const Box& b);  // requires boxes that overlap

// Returns the parts of `boxes` that are in none of `taken`, as boxes. They do not overlap if `boxes` do not. Each of `taken`
// splits a box that it overlaps into at most 2 * rank boxes.
std::vector<Box> rest_of(std::vector<Box> boxes, const std::vector<Box>& taken);

// Calls f(box, begin, end, place) for every box with elements in the region: elements [begin, end) of the box's row-major order.
// Element `begin` of the box is element `place` of the region.
template <class F>
void for_each_box_part(const Region& region, F f) {
  int64_t start = 0;
  for (const Box& box : region.boxes) {
    const int64_t numel = box.numel();
    const int64_t begin = region.first > start ? region.first - start : 0;
    const int64_t end = region.first + region.count < start + numel ? region.first + region.count - start : numel;
    if (begin < end) f(box, begin, end, start + begin - region.first);
    start += numel;
  }
}

}  // namespace zt
