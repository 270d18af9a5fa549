// Random regions of small tensors, and lists of their elements.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "zt/reshard/region.h"

namespace zt::test {

// A random generator, splitmix64, that gives the same cases on every machine.
class Dice {
 public:
  explicit Dice(uint64_t seed) : state_(seed) {}
  // Returns a number in [0, sides).
  int64_t operator()(int64_t sides) {
    uint64_t z = state_ += 0x9E3779B97F4A7C15;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9;
    z = (z ^ z >> 27) * 0x94D049BB133111EB;
    return static_cast<int64_t>((z ^ z >> 31) % static_cast<uint64_t>(sides));
  }

 private:
  uint64_t state_;
};

// Returns the elements of a region in its order, each as its row-major number in the whole tensor. Enumerates them one by one.
inline std::vector<int64_t> elements_of(const std::vector<int64_t>& shape, const Region& region) {
  std::vector<int64_t> elements;
  for (const Box& box : region.boxes) {
    std::vector<int64_t> at = box.begin;
    bool is_done = false;
    for (size_t d = 0; d < shape.size(); ++d) is_done = is_done || box.begin[d] == box.end[d];
    while (!is_done) {
      int64_t element = 0;
      for (size_t d = 0; d < shape.size(); ++d) element = element * shape[d] + at[d];
      elements.push_back(element);
      size_t d = shape.size();
      while (d > 0 && ++at[d - 1] == box.end[d - 1]) {
        at[d - 1] = box.begin[d - 1];
        --d;
      }
      is_done = d == 0;
    }
  }
  return {elements.begin() + region.first, elements.begin() + region.first + region.count};
}

// Returns a shape of about 100 elements at most, with up to 8 dims, some of size 0 or 1.
inline std::vector<int64_t> random_shape(Dice& dice) {
  std::vector<int64_t> shape(dice(6) == 0 ? dice(9) : 1 + dice(3));
  const bool may_be_empty = dice(20) == 0;
  int64_t numel = 1;
  for (int64_t& size : shape) {
    size = 1 + dice(numel > 30 ? 2 : 6);
    if (may_be_empty && dice(3) == 0) size = 0;
    numel *= size;
  }
  return shape;
}

// Returns boxes that do not overlap: the whole tensor, one box, or some slices of a box along one dim, in any order.
inline std::vector<Box> random_boxes(Dice& dice, const std::vector<int64_t>& shape) {
  Box box{std::vector<int64_t>(shape.size(), 0), shape};
  const int64_t kind = dice(3);
  if (kind == 0) return {box};
  for (size_t d = 0; d < shape.size(); ++d) {
    if (dice(2) == 0 || shape[d] == 0) continue;
    box.begin[d] = dice(shape[d]);
    box.end[d] = box.begin[d] + (dice(30) != 0) * (1 + dice(shape[d] - box.begin[d]));
  }
  if (kind == 1 || shape.empty()) return {box};
  const size_t dim = dice(static_cast<int64_t>(shape.size()));
  std::vector<Box> boxes;
  while (box.begin[dim] < box.end[dim]) {
    Box slice = box;
    box.begin[dim] = slice.end[dim] = box.begin[dim] + 1 + dice(box.end[dim] - box.begin[dim]);
    if (dice(4) != 0) boxes.insert(boxes.begin() + dice(static_cast<int64_t>(boxes.size()) + 1), slice);
  }
  return boxes;
}

// Returns all elements of the boxes, or a random range of them.
inline Region random_part(Dice& dice, std::vector<Box> boxes) {
  int64_t numel = 0;
  for (const Box& box : boxes) numel += box.numel();
  if (dice(3) == 0) return {std::move(boxes), 0, numel};
  const int64_t first = dice(std::max<int64_t>(numel, 1));
  return {std::move(boxes), first, std::min(numel - first, 1 + dice(numel - first + 1))};
}

inline std::string text_of(const std::vector<int64_t>& numbers) {
  std::string text = "[";
  for (const int64_t number : numbers) text += (text.size() > 1 ? ", " : "") + std::to_string(number);
  return text + "]";
}

inline std::string text_of(const Region& region) {
  std::string text = std::to_string(region.count) + " from " + std::to_string(region.first) + " of";
  for (const Box& box : region.boxes) text += " " + text_of(box.begin) + "-" + text_of(box.end);
  return text;
}

}  // namespace zt::test
