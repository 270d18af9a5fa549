// The ranges of swap files: what is free, and what a save keeps from being overwritten.
#include <gtest/gtest.h>

#include <chrono>
#include <future>
#include <random>

#include "files/extents.h"
#include "files/free_ranges.h"
#include "files/kept_ranges.h"

namespace zt::offload {

namespace {

TEST(FreeRanges, JoinsWhatTouches) {
  FreeRanges free;
  free.add(0, 10);
  free.add(20, 10);
  EXPECT_EQ(free.take(15), -1);
  free.add(10, 10);
  EXPECT_EQ(free.take(30), 0);
  EXPECT_EQ(free.take(1), -1);
  free.add(5, 0);
  EXPECT_EQ(free.take(1), -1);
}

struct PlainExtent {
  int64_t end() const { return begin + bytes; }
  int64_t begin, bytes;
};

TEST(Extents, GrowByAQuarterAtMost) {
  Extents<PlainExtent> extents([](auto& all, int64_t begin, int64_t bytes) { all.push_back({begin, bytes}); }, 0);
  constexpr int64_t kTaken = int64_t{1} << 20;
  int64_t taken = 0;
  for (int i = 0; i < 1000; ++i) {
    extents.take(kTaken);
    taken += kTaken;
    int64_t reserved = 0;
    for (const PlainExtent& extent : extents.all()) reserved += extent.bytes;
    ASSERT_LE(reserved, taken + std::max(taken / 4, 4 * kTaken) + 2 * kTaken * std::ssize(extents.all())) << i;
  }
  EXPECT_LT(extents.all().size(), 30u);
}

TEST(FreeRanges, GivesNothingTwice) {
  constexpr int kSize = 200;
  FreeRanges free;
  free.add(0, kSize);
  std::vector<bool> taken(kSize, false);
  std::vector<std::pair<int64_t, int64_t>> held;
  std::mt19937 draw(5);
  for (int i = 0; i < 2000; ++i) {
    if (draw() % 2 == 0) {
      const int64_t bytes = 1 + draw() % 20, place = free.take(bytes);
      if (place < 0) continue;
      for (int64_t k = place; k < place + bytes; ++k) {
        ASSERT_FALSE(taken[static_cast<size_t>(k)]);
        taken[static_cast<size_t>(k)] = true;
      }
      held.emplace_back(place, bytes);
    } else if (!held.empty()) {
      std::swap(held[draw() % held.size()], held.back());
      const auto [place, bytes] = held.back();
      held.pop_back();
      free.add(place, bytes);
      for (int64_t k = place; k < place + bytes; ++k) taken[static_cast<size_t>(k)] = false;
    }
  }
  for (const auto& [place, bytes] : held) free.add(place, bytes);
  EXPECT_EQ(free.take(kSize), 0);
}

// Starts a wait on another thread. It is over when the future is ready.
std::future<void> wait_for(KeptRanges& kept, int64_t begin, int64_t bytes) {
  return std::async(std::launch::async, [&kept, begin, bytes] { kept.await_release(begin, bytes); });
}

bool is_over(const std::future<void>& waiting) {
  return waiting.wait_for(std::chrono::milliseconds(30)) == std::future_status::ready;
}

TEST(KeptRanges, WaitUntilAllOfTheBytesAreReleased) {
  KeptRanges kept;
  const auto first = kept.add(100, 100), second = kept.add(150, 100);
  EXPECT_TRUE(is_over(wait_for(kept, 0, 100)));
  EXPECT_TRUE(is_over(wait_for(kept, 250, 10)));
  const auto waiting = wait_for(kept, 90, 20);
  kept.release(first, 105, 95);
  EXPECT_FALSE(is_over(waiting));
  kept.release(first, 0, 105);
  EXPECT_TRUE(is_over(waiting));
  EXPECT_TRUE(is_over(wait_for(kept, 105, 45)));
  const auto middle = wait_for(kept, 105, 100);
  EXPECT_FALSE(is_over(middle));
  kept.remove(first);
  EXPECT_FALSE(is_over(middle));
  kept.remove(second);
  EXPECT_TRUE(is_over(middle));
}

}  // namespace

}  // namespace zt::offload
