// Tests which items intervals_in_memory keeps under a bound, and how early earliest_places loads them.
#include "zt/program/intervals.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>

#include "support/message.h"
#include "zt/base/error.h"

namespace zt::test {
namespace {

using Uses = std::vector<std::vector<int>>;

TEST(Intervals, AnItemStaysWithoutABound) {
  EXPECT_EQ(intervals_in_memory({{0}, {1}, {0}, {}, {1}}, {5, 5}, {}), (std::vector<MemoryInterval>{{0, 0, 2}, {1, 1, 4}}));
}

TEST(Intervals, AnItemLeavesIfItMayNotStay) {
  const auto near = [](int, int from, int to) { return to - from < 3; };
  EXPECT_EQ(intervals_in_memory({{0}, {1}, {0}, {}, {1}}, {5, 5}, {.may_stay = near}),
            (std::vector<MemoryInterval>{{0, 0, 2}, {1, 1, 1}, {1, 4, 4}}));
}

TEST(Intervals, TheItemWithTheFarthestNextUseLeaves) {
  // At action 2 there is room for two of three items. Item 0 is used again before item 1.
  EXPECT_EQ(intervals_in_memory({{0}, {1}, {2}, {0}, {1}}, {1, 1, 1}, {.bound = 2}),
            (std::vector<MemoryInterval>{{0, 0, 3}, {1, 1, 1}, {2, 2, 2}, {1, 4, 4}}));
}

TEST(Intervals, ItemsOfOneActionMustFit) {
  EXPECT_EQ(intervals_in_memory({{0, 1, 0}}, {2, 3}, {.bound = 5}).size(), 2U);
  EXPECT_SAYS("action 1 needs 5 elements at the same time, and the bound is 4",
              intervals_in_memory({{0}, {0, 1}}, {2, 3}, {.bound = 4}));
}

// Returns the fewest loads of any rule: tries all sets that may be in memory after each action.
int fewest_loads(const Uses& uses, int items, int bound) {
  std::map<unsigned, int> best{{0U, 0}};  // by set in memory
  for (const auto& needed : uses) {
    unsigned wanted = 0;
    for (const int item : needed) wanted |= 1U << item;
    std::map<unsigned, int> next;
    for (const auto& [held, loads] : best) {
      for (unsigned set = 0; set < 1U << items; ++set) {
        const bool follows = (set & wanted) == wanted && (set & ~(held | wanted)) == 0;
        if (!follows || __builtin_popcount(set) > bound) continue;
        const int after = loads + __builtin_popcount(wanted & ~held);
        const auto known = next.try_emplace(set, after).first;
        known->second = std::min(known->second, after);
      }
    }
    best = std::move(next);
  }
  return std::ranges::min_element(best, {}, [](const auto& entry) { return entry.second; })->second;
}

TEST(Intervals, NoOtherRuleLoadsEqualItemsLessOften) {
  std::mt19937 random(7);
  const auto below = [&](int count) { return static_cast<int>(random() % static_cast<unsigned>(count)); };
  for (int round = 0; round < 200; ++round) {
    const int items = 2 + below(4), bound = 1 + below(items);
    Uses uses(static_cast<size_t>(3 + below(10)));
    for (auto& needed : uses) needed = {below(items)};
    const auto found = intervals_in_memory(uses, std::vector<int64_t>(static_cast<size_t>(items), 1), {.bound = bound});
    EXPECT_EQ(static_cast<int>(found.size()), fewest_loads(uses, items, bound)) << "round " << round;
  }
}

struct RandomCase {
  std::vector<int64_t> sizes;
  Uses uses;
  int64_t bound = 0;  // above what any action needs
};

RandomCase draw_case(std::mt19937& random) {
  const auto below = [&](int count) { return static_cast<int>(random() % static_cast<unsigned>(count)); };
  RandomCase drawn{std::vector<int64_t>(static_cast<size_t>(1 + below(6))), {}};
  for (int64_t& size : drawn.sizes) size = 1 + below(9);
  drawn.uses.resize(static_cast<size_t>(1 + below(20)));
  for (auto& needed : drawn.uses) {
    std::set<int> chosen;
    for (int count = below(3); count > 0; --count) chosen.insert(below(static_cast<int>(drawn.sizes.size())));
    needed.assign(chosen.begin(), chosen.end());
    int64_t sum = 0;
    for (const int item : chosen) sum += drawn.sizes[static_cast<size_t>(item)];
    drawn.bound = std::max(drawn.bound, sum);
  }
  drawn.bound += 1 + below(10);
  return drawn;
}

TEST(Intervals, EveryUseIsCoveredUnderTheBound) {
  std::mt19937 random(8);
  for (int round = 0; round < 200; ++round) {
    const auto [sizes, uses, bound] = draw_case(random);
    const auto found = intervals_in_memory(uses, sizes, {.bound = bound});
    EXPECT_TRUE(std::ranges::is_sorted(found, {}, &MemoryInterval::first));
    for (int action = 0; action < static_cast<int>(uses.size()); ++action) {
      int64_t held = 0;
      std::multiset<int> there;
      for (const MemoryInterval& interval : found) {
        if (interval.first > action || interval.last < action) continue;
        held += sizes[static_cast<size_t>(interval.item)];
        there.insert(interval.item);
      }
      EXPECT_LE(held, bound);
      for (const int item : uses[static_cast<size_t>(action)]) EXPECT_EQ(there.count(item), 1U);
    }
  }
}

TEST(Places, AreAsEarlyAsTheBoundAllows) {
  const std::vector<MemoryInterval> intervals{{0, 0, 1}, {1, 2, 2}, {2, 4, 5}, {0, 5, 6}};
  EXPECT_EQ(earliest_places(intervals, {1, 1, 1}, 7, {}), (std::vector<int>{0, 0, 0, 2}));
  EXPECT_EQ(earliest_places(intervals, {1, 1, 1}, 7, {.ahead = 1}), (std::vector<int>{0, 0, 2, 4}));
  EXPECT_EQ(earliest_places(intervals, {1, 1, 1}, 7, {.ahead = 0}), (std::vector<int>{0, 2, 4, 5}));
  EXPECT_EQ(earliest_places(intervals, {1, 1, 1}, 7, {.bound = 2}), (std::vector<int>{0, 0, 2, 3}));
  EXPECT_EQ(earliest_places(intervals, {1, 2, 1}, 7, {.bound = 2}), (std::vector<int>{0, 2, 3, 3}));
}

TEST(Places, KeepTheBound) {
  std::mt19937 random(9);
  for (int round = 0; round < 200; ++round) {
    const auto [sizes, uses, bound] = draw_case(random);
    const auto found = intervals_in_memory(uses, sizes, {.bound = bound});
    const auto places = earliest_places(found, sizes, uses.size(), {.bound = bound});
    for (int action = 0; action < static_cast<int>(uses.size()); ++action) {
      int64_t held = 0;
      std::set<int> there;
      for (size_t k = 0; k < found.size(); ++k) {
        if (places[k] > action || found[k].last < action) continue;
        held += sizes[static_cast<size_t>(found[k].item)];
        EXPECT_TRUE(there.insert(found[k].item).second) << "an item is loaded twice";
      }
      EXPECT_LE(held, bound);
    }
  }
}

}  // namespace
}  // namespace zt::test
