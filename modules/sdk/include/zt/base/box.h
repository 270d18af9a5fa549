// Rectangles of tensors, as plain numbers.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

namespace zt {

// A rectangle of a logical tensor: [begin, end) in each dim. For a tensor without dims the box holds its one element.
struct Box {
  std::vector<int64_t> begin, end;

  // Returns the number of elements. Throws Misuse if 64 bits cannot hold it.
  int64_t numel() const;
  bool operator==(const Box&) const = default;
};

// Elements of a box that lie one after the other in the tensor, both numbered row-major.
struct BoxRun {
  int64_t in_box = 0;     // the number of the first element within the box
  int64_t in_tensor = 0;  // the same element's number within the tensor
  int64_t count = 0;
};

// Calls visit for the runs that together are the elements [begin, end) of the box, ascending. `shape`: of the tensor.
void for_each_run(const Box& box, const std::vector<int64_t>& shape, int64_t begin, int64_t end,
                  const std::function<void(const BoxRun&)>& visit);

}  // namespace zt
