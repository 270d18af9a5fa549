// Which parts of a process's memory for large blocks are in use, and which of the free ones still take memory of the machine.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <utility>

namespace zt::host {

// Keeps books only: the memory belongs to the caller. Addresses and sizes are multiples of kPage. A free range is warm while its
// pages are still in memory, and cold once they were given back to the system. Warm ranges are used again first, because a new
// page costs a fault. Blocks and warm ranges together take no more than the blocks did at their peak, but for `slack()`: where
// cold pages must be touched, the warm ranges that were not used for the longest time are given back. Threads: one at a time.
class BlockPool {
 public:
  static constexpr size_t kPage = 4096;
  using Release = std::function<void(uintptr_t begin, size_t bytes)>;
  // `release`: gives the pages of a range back to the system; they stay reserved.
  explicit BlockPool(Release release) : release_(std::move(release)) {}

  // Adds reserved memory that was not touched yet.
  void add(uintptr_t begin, size_t bytes);
  // Takes a block of free memory; 0 if there is no free range of this size.
  uintptr_t take(size_t bytes);
  void give_back(uintptr_t begin, size_t bytes);
  // Forgets all free ranges, and calls `unmap` for each.
  void remove_free(const Release& unmap);

  size_t used() const { return used_; }  // bytes of blocks
  size_t warm() const { return warm_; }  // bytes of free ranges that are in memory
  size_t peak() const { return peak_; }  // of used()
  size_t slack() const { return kLeastSlack + peak_ / kPage / 64 * kPage; }

 private:
  static constexpr size_t kLeastSlack = size_t{4} << 20;

  // Free ranges of one kind; neighbours are joined.
  class Ranges {
   public:
    // Adds a range; `time` orders what it becomes part of.
    void add(uintptr_t begin, size_t bytes, uint64_t time);
    // Takes so many bytes from the begin of the smallest range that has them; 0 if there is none.
    uintptr_t take(size_t bytes);
    // Takes at most so many bytes from the range with the least time. There must be one.
    std::pair<uintptr_t, size_t> take_oldest(size_t most);
    bool is_empty() const { return by_place_.empty(); }

   private:
    struct Range {
      size_t bytes;
      uint64_t time;
    };
    using Place = std::map<uintptr_t, Range>::iterator;
    void insert(uintptr_t begin, Range range);
    Range remove(Place place);

    std::map<uintptr_t, Range> by_place_;
    std::set<std::pair<size_t, uintptr_t>> by_size_;
    std::set<std::pair<uint64_t, uintptr_t>> by_time_;
  };

  const Release release_;
  Ranges warm_ranges_, cold_ranges_;
  size_t used_ = 0, warm_ = 0, peak_ = 0;
  uint64_t time_ = 0;
};

}  // namespace zt::host
