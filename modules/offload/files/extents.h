// A tier of a rank, of one extent whose size is known from the start, and of further ones for what is taken later.
#pragma once

#include <algorithm>
#include <deque>
#include <functional>
#include <mutex>

#include "files/free_ranges.h"

namespace zt::offload {

// `Extent` has its `begin` and its `end()`, in bytes of the tier. Extents do not move.
// Threads: any for `at`, one for the rest.
template <class Extent>
class Extents {
 public:
  // Adds an extent of so many bytes from `begin` on. Throws if there is no room.
  using Add = std::function<void(std::deque<Extent>& all, int64_t begin, int64_t bytes)>;
  Extents(Add add, int64_t bytes) : add_(std::move(add)) { add_(all_, 0, bytes); }

  Extent& at(int64_t place) {
    const std::lock_guard lock(mutex_);
    return *std::prev(std::ranges::upper_bound(all_, place, {}, &Extent::begin));
  }
  const Extent& first() const { return all_.front(); }
  Extent& first() { return all_.front(); }
  const std::deque<Extent>& all() const { return all_; }

  // Takes bytes besides those of the first extent, and returns their place.
  int64_t take(int64_t bytes) {
    const int64_t place = free_.take(bytes);
    return place >= 0 ? place : grow(bytes);
  }
  void give_back(int64_t place, int64_t bytes) { free_.add(place, bytes); }

 private:
  static constexpr int64_t kLeastGrowth = int64_t{4} << 20, kGap = 4096;

  // Adds at least a quarter of what was added so before, if there is room.
  int64_t grow(int64_t bytes) {
    const std::lock_guard lock(mutex_);
    const int64_t begin = all_.back().end() + kGap;  // free ranges of two extents do not become one
    int64_t size = std::max({bytes, grown_ / 4 / kGap * kGap, kLeastGrowth});
    try {
      add_(all_, begin, size);
    } catch (const std::exception&) {
      if (size == bytes) throw;
      add_(all_, begin, size = bytes);
    }
    grown_ += size;
    if (size > bytes) free_.add(begin + bytes, size - bytes);
    return begin;
  }

  const Add add_;
  std::mutex mutex_;
  std::deque<Extent> all_;
  int64_t grown_ = 0;  // bytes of the extents after the first
  FreeRanges free_;
};

}  // namespace zt::offload
