// Parts of ranges and rectangles of tensors, as plain numbers.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace zt {

// Consecutive numbers: [begin, begin + count).
struct Share {
  int64_t begin = 0, count = 0;
  int64_t end() const { return begin + count; }
  bool operator==(const Share&) const = default;
};

// Returns the share with index `index` of `total` things cut into `parts` shares as even as can be: it begins at
// ceil(index * total / parts). No share is larger than the first, and none is empty if total >= parts.
Share share_of(int64_t total, int parts, int index);
// Adds a range after the last one, or extends that where they touch. An empty range adds nothing.
void add_range(std::vector<Share>& ranges, Share range);

// A rectangle of a tensor: [begin, end) in each dim. For a tensor without dims the box holds its one element.
struct Box {
  std::vector<int64_t> begin, end;

  // Returns the number of elements. Throws Misuse if 64 bits cannot hold it.
  int64_t numel() const;
  bool operator==(const Box&) const = default;
};

// Elements of boxes that lie one after the other in the tensor.
struct BoxRun {
  int64_t in_boxes = 0;   // the number of the first element in the boxes: row-major in each, one box after the other
  int64_t in_tensor = 0;  // the same element's number in the tensor, row-major
  int64_t count = 0;
};

// Calls visit for the runs that together are the elements [begin, end) of the boxes, ascending. `shape`: of the tensor.
void for_each_run(std::span<const Box> boxes, const std::vector<int64_t>& shape, int64_t begin, int64_t end,
                  const std::function<void(const BoxRun&)>& visit);

}  // namespace zt
