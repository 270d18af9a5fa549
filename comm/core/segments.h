// The division of a buffer over the ranks of a group.
#pragma once

#include <algorithm>
#include <cstdint>

namespace zt::comm {

// Splits `count` elements into one segment per rank: nearly equal in length, in rank order.
struct Segments {
  int64_t count = 0;
  int ranks = 1;
  int64_t begin(int rank) const { return count / ranks * rank + std::min<int64_t>(rank, count % ranks); }
  int64_t size(int rank) const { return begin(rank + 1) - begin(rank); }
};

}  // namespace zt::comm
