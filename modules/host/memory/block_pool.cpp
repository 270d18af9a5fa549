#include "memory/block_pool.h"

#include <algorithm>
#include <iterator>

namespace zt::host {

void BlockPool::Ranges::insert(uintptr_t begin, Range range) {
  by_place_.emplace(begin, range);
  by_size_.emplace(range.bytes, begin);
  by_time_.emplace(range.time, begin);
}

BlockPool::Ranges::Range BlockPool::Ranges::remove(Place place) {
  const auto [begin, range] = *place;
  by_size_.erase({range.bytes, begin});
  by_time_.erase({range.time, begin});
  by_place_.erase(place);
  return range;
}

void BlockPool::Ranges::add(uintptr_t begin, size_t bytes, uint64_t time) {
  const Place next = by_place_.lower_bound(begin);
  if (next != by_place_.begin()) {
    const Place before = std::prev(next);
    if (before->first + before->second.bytes == begin) {
      begin = before->first;
      bytes += remove(before).bytes;
    }
  }
  if (next != by_place_.end() && begin + bytes == next->first) bytes += remove(next).bytes;
  insert(begin, {bytes, time});
}

uintptr_t BlockPool::Ranges::take(size_t bytes) {
  const auto fitting = by_size_.lower_bound({bytes, 0});
  if (fitting == by_size_.end()) return 0;
  const uintptr_t begin = fitting->second;
  const Range range = remove(by_place_.find(begin));
  if (range.bytes > bytes) insert(begin + bytes, {range.bytes - bytes, range.time});
  return begin;
}

std::pair<uintptr_t, size_t> BlockPool::Ranges::take_oldest(size_t most) {
  const uintptr_t begin = by_time_.begin()->second;
  const Range range = remove(by_place_.find(begin));
  const size_t taken = std::min(range.bytes, most);
  if (taken < range.bytes) insert(begin, {range.bytes - taken, range.time});
  return {begin + range.bytes - taken, taken};
}

void BlockPool::add(uintptr_t begin, size_t bytes) {
  cold_ranges_.add(begin, bytes, ++time_);
}

uintptr_t BlockPool::take(size_t bytes) {
  uintptr_t begin = warm_ranges_.take(bytes);
  if (begin != 0) {
    warm_ -= bytes;
  } else {
    begin = cold_ranges_.take(bytes);
    if (begin == 0) return 0;
  }
  used_ += bytes;
  peak_ = std::max(peak_, used_);
  while (used_ + warm_ > peak_ + slack()) {
    const auto [first, size] = warm_ranges_.take_oldest(used_ + warm_ - peak_ - slack());
    release_(first, size);
    warm_ -= size;
    cold_ranges_.add(first, size, ++time_);
  }
  return begin;
}

void BlockPool::give_back(uintptr_t begin, size_t bytes) {
  used_ -= bytes;
  warm_ += bytes;
  warm_ranges_.add(begin, bytes, ++time_);
}

void BlockPool::remove_free(const Release& unmap) {
  for (Ranges* ranges : {&warm_ranges_, &cold_ranges_}) {
    while (!ranges->is_empty()) {
      const auto [begin, bytes] = ranges->take_oldest(SIZE_MAX);
      unmap(begin, bytes);
    }
  }
  warm_ = 0;
}

}  // namespace zt::host
