#include "zt/io/range.h"

#include <algorithm>

namespace zt::io {

std::vector<Range> gaps_between(std::vector<Range> taken, int64_t bytes) {
  std::ranges::sort(taken, {}, &Range::offset);
  std::vector<Range> gaps;
  int64_t end = 0;
  for (const Range& range : taken) {
    if (range.bytes == 0) continue;
    if (range.offset > end) gaps.push_back({end, range.offset - end});
    end = range.offset + range.bytes;
  }
  if (bytes > end) gaps.push_back({end, bytes - end});
  return gaps;
}

}  // namespace zt::io
