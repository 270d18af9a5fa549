#include "zt/io/range.h"

#include <algorithm>

namespace zt::io {

std::vector<FileRange> gaps_between(std::vector<FileRange> taken, int64_t bytes) {
  std::ranges::sort(taken, {}, &FileRange::offset);
  std::vector<FileRange> gaps;
  int64_t end = 0;
  for (const FileRange& range : taken) {
    if (range.bytes == 0) continue;
    if (range.offset > end) gaps.push_back({end, range.offset - end});
    end = range.offset + range.bytes;
  }
  if (bytes > end) gaps.push_back({end, bytes - end});
  return gaps;
}

}  // namespace zt::io
