// Rectangles of tensors, as plain numbers.
#pragma once

#include <cstdint>
#include <vector>

namespace zt {

// A rectangle of a logical tensor: [begin, end) in each dim. For a tensor without dims the box holds its one element.
struct Box {
  std::vector<int64_t> begin, end;

  // Returns the number of elements. Throws Misuse if 64 bits cannot hold it.
  int64_t numel() const;
  bool operator==(const Box&) const = default;
};

}  // namespace zt
