#include "zt/program/intervals.h"

#include <algorithm>
#include <limits>
#include <map>
#include <set>

#include "zt/base/error.h"

namespace zt {

namespace {

constexpr int kNever = std::numeric_limits<int>::max();

class Planner {
 public:
  Planner(const std::vector<std::vector<int>>& uses, const std::vector<int64_t>& sizes, const IntervalRules& rules)
      : uses_(uses), sizes_(sizes), rules_(rules), of_item_(sizes.size()), latest_(sizes.size(), -1) {
    for (int action = static_cast<int>(uses.size()) - 1; action >= 0; --action) {
      for (const int item : uses[static_cast<size_t>(action)]) of_item_[static_cast<size_t>(item)].push_back(action);
    }
  }

  std::vector<MemoryInterval> plan() {
    for (int action = 0; action < static_cast<int>(uses_.size()); ++action) {
      const auto& items = uses_[static_cast<size_t>(action)];
      const std::set<int> needed(items.begin(), items.end());
      make_room(action, needed);
      for (const int item : needed) use(item, action);
    }
    return intervals_;
  }

 private:
  int64_t size(int item) const { return sizes_[static_cast<size_t>(item)]; }
  int next_use(int item) const {
    const auto& left = of_item_[static_cast<size_t>(item)];
    return left.empty() ? kNever : left.back();
  }

  void make_room(int action, const std::set<int>& needed) {
    if (rules_.bound <= 0) return;
    int64_t wanted = 0;
    for (const int item : needed) wanted += size(item);
    if (wanted > rules_.bound)
      misuse("action {} needs {} elements at the same time, and the bound is {}", action, wanted, rules_.bound);
    for (const int item : in_memory_) wanted += needed.contains(item) ? 0 : size(item);
    while (wanted > rules_.bound) {
      const int farthest =
          *std::ranges::max_element(in_memory_, {}, [&](int item) { return needed.contains(item) ? -1 : next_use(item); });
      wanted -= size(farthest);
      in_memory_.erase(farthest);
    }
  }

  void use(int item, int action) {
    auto& left = of_item_[static_cast<size_t>(item)];
    while (!left.empty() && left.back() <= action) left.pop_back();
    auto& latest = latest_[static_cast<size_t>(item)];
    if (in_memory_.insert(item).second) {
      latest = static_cast<int>(intervals_.size());
      intervals_.push_back({item, action, action});
    }
    intervals_[static_cast<size_t>(latest)].last = action;
    const int next = next_use(item);
    if (next == kNever || (rules_.may_stay && !rules_.may_stay(item, action, next))) in_memory_.erase(item);
  }

  const std::vector<std::vector<int>>& uses_;
  const std::vector<int64_t>& sizes_;
  const IntervalRules& rules_;
  std::vector<std::vector<int>> of_item_;  // by item: the actions that use it and are still to come, descending
  std::vector<int> latest_;                // by item: its latest interval
  std::set<int> in_memory_;
  std::vector<MemoryInterval> intervals_;
};

}  // namespace

std::vector<MemoryInterval> intervals_in_memory(const std::vector<std::vector<int>>& uses, const std::vector<int64_t>& sizes,
                                                const IntervalRules& rules) {
  return Planner(uses, sizes, rules).plan();
}

std::vector<int> earliest_places(const std::vector<MemoryInterval>& intervals, const std::vector<int64_t>& sizes, size_t actions,
                                 const PlaceRules& rules) {
  std::vector<int64_t> held(actions, 0);  // by action: the sum of the sizes of the intervals placed so far
  std::vector<int> places;
  std::map<int, int> ends;  // by item: end of its latest interval
  for (int k = 0; k < static_cast<int>(intervals.size()); ++k) {
    const MemoryInterval& interval = intervals[static_cast<size_t>(k)];
    const auto [end, is_first] = ends.try_emplace(interval.item, -1);
    const int ahead = rules.ahead < 0 ? 0 : intervals[static_cast<size_t>(std::max(0, k - rules.ahead))].first;
    const int64_t size = sizes[static_cast<size_t>(interval.item)];
    const auto has_room = [&](int action) { return rules.bound <= 0 || held[static_cast<size_t>(action)] + size <= rules.bound; };
    int place = interval.first;
    while (place > std::max(ahead, end->second + 1) && has_room(place - 1)) --place;
    for (int action = place; action <= interval.last; ++action) held[static_cast<size_t>(action)] += size;
    places.push_back(place);
    end->second = interval.last;
  }
  return places;
}

}  // namespace zt
