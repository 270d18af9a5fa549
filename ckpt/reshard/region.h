// Parts of tensors: what a rank holds, what a file holds.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "zt/base/box.h"

namespace zt::ckpt {

// A part of a logical tensor: the boxes concatenated, each row-major, of which [first, first + count) is meant. The boxes of one
// region do not overlap.
struct Region {
  std::vector<Box> boxes;
  int64_t first = 0;
  int64_t count = 0;

  bool operator==(const Region&) const = default;
};

// The number of elements; nothing if a size is negative or 64 bits do not hold the strides.
std::optional<int64_t> numel_of(const std::vector<int64_t>& shape);

// What is wrong with a region of a tensor of this shape, in words; empty: nothing. For regions that come from outside: the other
// functions take them as valid.
std::string validate_region(const std::vector<int64_t>& shape, const Region& region);

// The whole of a tensor. Misuse if 64 bits cannot count its elements.
Region whole_region(const std::vector<int64_t>& shape);

// A box of which element i in row-major order is element place + i of a region.
struct PlacedBox {
  Box box;
  int64_t place;
};

// A region as boxes without cuts, in the region's order: at most 2 * (rank - 1) more than it has boxes, and none is empty.
std::vector<PlacedBox> region_boxes(const Region& region);

// What two boxes of one tensor share. Empty boxes (begin = end in some dim) share nothing.
bool overlaps(const Box& a, const Box& b);
Box intersection(const Box& a, const Box& b);  // of boxes that overlap

// What of `boxes` is in none of `taken`, as boxes that do not overlap if `boxes` do not: of one box at most 2 * rank for each of
// `taken` that overlaps with what is left of it.
std::vector<Box> rest_of(std::vector<Box> boxes, const std::vector<Box>& taken);

// Calls f(box, begin, end, place) for every box of which the region holds elements: those in [begin, end) of the box's row-major
// order, where element `begin` is element `place` of the region.
template <class F>
void for_each_cut(const Region& region, F f) {
  int64_t start = 0;
  for (const Box& box : region.boxes) {
    const int64_t numel = box.numel();
    const int64_t begin = region.first > start ? region.first - start : 0;
    const int64_t end = region.first + region.count < start + numel ? region.first + region.count - start : numel;
    if (begin < end) f(box, begin, end, start + begin - region.first);
    start += numel;
  }
}

}  // namespace zt::ckpt
