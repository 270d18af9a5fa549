// Parts of a file.
#pragma once

#include <cstdint>
#include <vector>

namespace zt::io {

// The bytes [offset, offset + bytes).
struct FileRange {
  int64_t offset = 0;
  int64_t bytes = 0;
};

// Returns the non-empty parts of [0, bytes) that no range in `taken` covers, in ascending order.
// Requires that the ranges in `taken` lie within [0, bytes) and do not overlap.
std::vector<FileRange> gaps_between(std::vector<FileRange> taken, int64_t bytes);

}  // namespace zt::io
