#include "zt/reshard/region.h"

#include <fmt/format.h>

#include <algorithm>

namespace zt {

namespace {

std::string check_box_in(const std::vector<int64_t>& shape, const Box& box) {
  if (box.begin.size() != shape.size() || box.end.size() != shape.size())
    return fmt::format("has {} to {} dims, the tensor {}", box.begin.size(), box.end.size(), shape.size());
  for (size_t d = 0; d < shape.size(); ++d) {
    if (box.begin[d] < 0 || box.begin[d] > box.end[d] || box.end[d] > shape[d])
      return fmt::format("is [{}, {}) in dim {}, which is not in [0, {})", box.begin[d], box.end[d], d, shape[d]);
  }
  return {};
}

// Appends elements [begin, end) of a box, in row-major order, as boxes that span as many whole dims as possible.
void split_box(const Box& box, int64_t begin, int64_t end, int64_t place, std::vector<PlacedBox>& out) {
  const size_t rank = box.begin.size();
  std::vector<int64_t> row(rank + 1, 1);  // row[d]: number of elements in dims d and later
  for (size_t d = rank; d-- > 0;) row[d] = row[d + 1] * (box.end[d] - box.begin[d]);
  while (begin < end) {
    size_t whole = 0;  // the next box spans this dim and the later ones entirely
    while (begin % row[whole] != 0 || end - begin < row[whole]) ++whole;
    PlacedBox part{box, place};
    for (size_t d = 0; d < whole; ++d) {
      part.box.begin[d] = box.begin[d] + begin % row[d] / row[d + 1];
      part.box.end[d] = part.box.begin[d] + 1;
    }
    int64_t count = row[whole];
    if (whole > 0) {
      int64_t& last = part.box.end[whole - 1];
      last = std::min(box.end[whole - 1], part.box.begin[whole - 1] + (end - begin) / row[whole]);
      count *= last - part.box.begin[whole - 1];
    }
    out.push_back(std::move(part));
    begin += count;
    place += count;
  }
}

// Appends the part of `from` that is not in `taken`.
void subtract_box(const Box& from, const Box& taken, std::vector<Box>& out) {
  if (!overlaps(from, taken)) return out.push_back(from);
  Box rest = from;
  for (size_t d = 0; d < from.begin.size(); ++d) {
    if (rest.begin[d] < taken.begin[d]) {
      out.push_back(rest);
      out.back().end[d] = taken.begin[d];
      rest.begin[d] = taken.begin[d];
    }
    if (rest.end[d] > taken.end[d]) {
      out.push_back(rest);
      out.back().begin[d] = taken.end[d];
      rest.end[d] = taken.end[d];
    }
  }
}

}  // namespace

std::optional<int64_t> numel_of(const std::vector<int64_t>& shape) {
  int64_t numel = 1, without_zeros = 1;  // strides are products of the sizes other than 0
  for (const int64_t size : shape) {
    if (size < 0 || __builtin_mul_overflow(without_zeros, std::max<int64_t>(size, 1), &without_zeros)) return std::nullopt;
    numel *= size;
  }
  return numel;
}

std::string validate_region(const std::vector<int64_t>& shape, const Region& region) {
  if (!numel_of(shape)) return fmt::format("its tensor has the shape [{}]", fmt::join(shape, ", "));
  int64_t held = 0;
  for (size_t i = 0; i < region.boxes.size(); ++i) {
    const std::string problem = check_box_in(shape, region.boxes[i]);
    if (!problem.empty()) return fmt::format("its box {} {}", i, problem);
    if (__builtin_add_overflow(held, region.boxes[i].numel(), &held)) return "its boxes have more elements than 64 bits count";
  }
  if (region.first < 0 || region.count < 0 || region.first > held || region.count > held - region.first)
    return fmt::format("it has {} elements from number {} on, its boxes have {}", region.count, region.first, held);
  return {};
}

Region whole_region(const std::vector<int64_t>& shape) {
  Box box{std::vector<int64_t>(shape.size(), 0), shape};
  const int64_t count = box.numel();
  return {{std::move(box)}, 0, count};
}

std::vector<PlacedBox> region_boxes(const Region& region) {
  std::vector<PlacedBox> boxes;
  for_each_box_part(region,
                    [&](const Box& box, int64_t begin, int64_t end, int64_t place) { split_box(box, begin, end, place, boxes); });
  return boxes;
}

bool overlaps(const Box& a, const Box& b) {
  for (size_t d = 0; d < a.begin.size(); ++d) {
    if (std::max(a.begin[d], b.begin[d]) >= std::min(a.end[d], b.end[d])) return false;
  }
  return true;
}

Box intersection(const Box& a, const Box& b) {
  Box both = a;
  for (size_t d = 0; d < a.begin.size(); ++d) {
    both.begin[d] = std::max(a.begin[d], b.begin[d]);
    both.end[d] = std::min(a.end[d], b.end[d]);
  }
  return both;
}

std::vector<Box> rest_of(std::vector<Box> boxes, const std::vector<Box>& taken) {
  std::vector<Box> next;
  for (size_t i = 0; i < taken.size() && !boxes.empty(); ++i) {
    next.clear();
    for (const Box& box : boxes) subtract_box(box, taken[i], next);
    boxes.swap(next);
  }
  return boxes;
}

}  // namespace zt
