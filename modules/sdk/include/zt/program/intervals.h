// Decides when things that do not fit into memory together are in it: units that are whole, or data that is kept elsewhere.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

namespace zt {

// The actions from `first` to `last`, during which an item is in memory.
struct MemoryInterval {
  int item = 0, first = 0, last = 0;
  bool operator==(const MemoryInterval&) const = default;
};

struct IntervalRules {
  // Returns whether an item may stay from one use to the next. Empty: always.
  std::function<bool(int item, int from, int to)> may_stay = {};
  int64_t bound = 0;  // of the sum of the sizes that are in memory at the same time; 0: no bound
};

// Returns the intervals, sorted by `first`. `uses`: by action, the items that it needs; `sizes`: by item. An item is loaded at a
// use where it is not in memory. If there is no room, the item whose next use is farthest leaves first; for items of equal size
// no other rule loads less often. Pure. Throws Misuse if the items of one action exceed the bound. L. A. Belady: A study of
// replacement algorithms for a virtual-storage computer. IBM Systems Journal 5, 1966.
std::vector<MemoryInterval> intervals_in_memory(const std::vector<std::vector<int>>& uses, const std::vector<int64_t>& sizes,
                                                const IntervalRules& rules);

struct PlaceRules {
  int64_t bound = 0;  // as of IntervalRules
  // An item is loaded at the earliest at the begin of the interval that is so many intervals before its own; -1: at any action.
  int ahead = -1;
};

// Returns by interval the action before which its item is loaded: as early as the rules allow, and after the item's own interval
// before. The intervals are as intervals_in_memory returns them for the same sizes and bound. `actions`: their number. Pure.
std::vector<int> earliest_places(const std::vector<MemoryInterval>& intervals, const std::vector<int64_t>& sizes, size_t actions,
                                 const PlaceRules& rules);

}  // namespace zt
