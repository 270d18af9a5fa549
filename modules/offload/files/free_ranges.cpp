#include "files/free_ranges.h"

#include <algorithm>

namespace zt::offload {

void FreeRanges::add(int64_t begin, int64_t bytes) {
  if (bytes == 0) return;
  int64_t end = begin + bytes;
  const auto after = end_of_.lower_bound(begin);
  if (after != end_of_.end() && after->first == end) end = after->second;
  if (end != begin + bytes) end_of_.erase(after);
  const auto next = end_of_.lower_bound(begin);
  if (next != end_of_.begin() && std::prev(next)->second == begin) std::prev(next)->second = end;
  else end_of_[begin] = end;
}

int64_t FreeRanges::take(int64_t bytes) {
  const auto found = std::ranges::find_if(end_of_, [&](const auto& range) { return range.second - range.first >= bytes; });
  if (found == end_of_.end()) return -1;
  const auto [begin, end] = *found;
  end_of_.erase(found);
  if (begin + bytes < end) end_of_[begin + bytes] = end;
  return begin;
}

}  // namespace zt::offload
