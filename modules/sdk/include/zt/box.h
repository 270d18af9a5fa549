// Parts of a logical tensor, without LibTorch.
#pragma once

#include <cstdint>
#include <vector>

namespace zt {

// A rectangle of a logical tensor: [begin, end) in each dim.
struct Box {
  std::vector<int64_t> begin, end;
  int64_t numel() const;
};

}  // namespace zt
