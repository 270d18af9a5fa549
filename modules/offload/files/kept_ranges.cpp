#include "files/kept_ranges.h"

#include <algorithm>
#include <vector>

namespace zt::offload {

KeptRanges::Token KeptRanges::add(int64_t begin, int64_t bytes) {
  const std::lock_guard lock(mutex_);
  ranges_.emplace(begin, Range{next_, begin + bytes});
  return next_++;
}

void KeptRanges::release(Token token, int64_t begin, int64_t bytes) {
  {
    const std::lock_guard lock(mutex_);
    const int64_t end = begin + bytes;
    std::vector<std::pair<int64_t, int64_t>> rest;
    std::erase_if(ranges_, [&](const auto& entry) {
      const auto& [first, range] = entry;
      if (range.token != token || range.end <= begin || first >= end) return false;
      rest.emplace_back(first, std::min(range.end, begin));
      rest.emplace_back(std::max(first, end), range.end);
      return true;
    });
    for (const auto& [first, last] : rest) {
      if (first < last) ranges_.emplace(first, Range{token, last});
    }
  }
  released_.notify_all();
}

void KeptRanges::remove(Token token) {
  {
    const std::lock_guard lock(mutex_);
    std::erase_if(ranges_, [&](const auto& entry) { return entry.second.token == token; });
  }
  released_.notify_all();
}

void KeptRanges::await_release(int64_t begin, int64_t bytes) {
  std::unique_lock lock(mutex_);
  released_.wait(lock, [&] { return !has(begin, begin + bytes); });
}

bool KeptRanges::has(int64_t begin, int64_t end) const {
  return std::ranges::any_of(ranges_, [&](const auto& entry) { return entry.first < end && begin < entry.second.end; });
}

}  // namespace zt::offload
