// A part of a file.
#pragma once

#include <cstdint>
#include <vector>

namespace zt::ckpt {

struct Range {
  int64_t offset = 0;
  int64_t bytes = 0;
};

// What of a file of `bytes` bytes lies in none of the `taken`, which do not overlap: ascending, nothing empty.
std::vector<Range> gaps_between(std::vector<Range> taken, int64_t bytes);

}  // namespace zt::ckpt
