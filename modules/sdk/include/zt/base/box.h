// Rectangles of tensors, as plain numbers.
#pragma once

#include <cstdint>
#include <vector>

namespace zt {

// A rectangle of a logical tensor: [begin, end) in each dim. Of a tensor without dims: its one element.
struct Box {
  std::vector<int64_t> begin, end;

  // Misuse where 64 bits cannot hold it.
  int64_t numel() const;
  bool operator==(const Box&) const = default;
};

}  // namespace zt
