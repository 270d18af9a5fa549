// Decides when things that do not fit into memory together are in it: units that are whole, or data that is kept elsewhere.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

namespace zt::zero {

// The actions from `first` to `last`, during which an item is in memory.
struct ResidencyInterval {
  int item = 0, first = 0, last = 0;
  bool operator==(const ResidencyInterval&) const = default;
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
std::vector<ResidencyInterval> intervals_in_memory(const std::vector<std::vector<int>>& uses, const std::vector<int64_t>& sizes,
                                                   const IntervalRules& rules);

}  // namespace zt::zero
