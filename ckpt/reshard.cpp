#include "reshard.h"

#include <algorithm>

namespace zt::ckpt {

namespace {

// Cuts elements [first, first + count) of `box`, row-major, into boxes. From `dim` on the range is inside one row of the dims
// before.
void cut(const Box& box, size_t dim, int64_t first, int64_t count, int64_t place, std::vector<PlacedBox>& boxes) {
  if (count == 0) return;
  if (dim == box.begin.size()) {
    boxes.push_back({box, place});
    return;
  }
  int64_t row = 1;
  for (size_t d = dim + 1; d < box.begin.size(); ++d) row *= box.end[d] - box.begin[d];
  const auto part = [&](int64_t from, int64_t to) {
    Box rows = box;
    rows.begin[dim] = box.begin[dim] + from;
    rows.end[dim] = box.begin[dim] + to;
    return rows;
  };
  const int64_t head = std::min(count, (row - first % row) % row), whole = (count - head) / row;
  const int64_t start = first / row, full = (first + head) / row;
  if (head > 0) cut(part(start, start + 1), dim + 1, first % row, head, place, boxes);
  if (whole > 0) boxes.push_back({part(full, full + whole), place + head});
  const int64_t tail = count - head - whole * row;
  if (tail > 0) cut(part(full + whole, full + whole + 1), dim + 1, 0, tail, place + head + whole * row, boxes);
}

}  // namespace

std::vector<PlacedBox> region_boxes(const std::vector<int64_t>&, const Region& region) {
  std::vector<PlacedBox> boxes;
  int64_t start = 0;  // of the box, in the concatenation
  for (const Box& box : region.boxes) {
    const int64_t end = start + box.numel();
    const int64_t from = std::max(start, region.first), to = std::min(end, region.first + region.count);
    if (from < to) cut(box, 0, from - start, to - from, from - region.first, boxes);
    start = end;
  }
  return boxes;
}

}  // namespace zt::ckpt
