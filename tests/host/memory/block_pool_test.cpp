#include "memory/block_pool.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

namespace zt::host {
namespace {

constexpr size_t kPage = BlockPool::kPage;

// A pool, and which pages of its memory are in use and which are in the machine's memory.
class Pages : public testing::Test {
 protected:
  static constexpr uintptr_t kBegin = uintptr_t{1} << 40;

  void add(size_t pages) {
    pool_.add(kBegin + pages_.size() * kPage, pages * kPage);
    pages_.resize(pages_.size() + pages);
  }
  // Returns the first page of a block; -1 if there is none.
  int64_t take(size_t pages) {
    const uintptr_t place = pool_.take(pages * kPage);
    if (place == 0) return -1;
    const size_t first = (place - kBegin) / kPage;
    for (size_t page = first; page < first + pages; ++page) {
      EXPECT_FALSE(pages_.at(page).is_used) << page;
      fresh_ += pages_[page].is_warm ? 0 : 1;
      pages_[page] = {.is_used = true, .is_warm = true};
    }
    used_ += pages;
    check();
    return static_cast<int64_t>(first);
  }
  void give_back(size_t first, size_t pages) {
    pool_.give_back(kBegin + first * kPage, pages * kPage);
    for (size_t page = first; page < first + pages; ++page) pages_[page].is_used = false;
    used_ -= pages;
    check();
  }
  // The books agree with the pages.
  void check() {
    size_t warm = 0;
    for (const Page& page : pages_) warm += page.is_warm && !page.is_used ? kPage : 0;
    most_ = std::max(most_, used_);
    EXPECT_EQ(pool_.warm(), warm);
    EXPECT_EQ(pool_.used(), used_ * kPage);
    EXPECT_EQ(pool_.peak(), most_ * kPage);
    EXPECT_LE(pool_.used() + pool_.warm(), pool_.peak() + pool_.slack());
  }

  struct Page {
    bool is_used = false, is_warm = false;
  };
  std::vector<Page> pages_;
  size_t used_ = 0, most_ = 0, fresh_ = 0;  // in pages; `fresh_`: that were taken while they were not in memory
  BlockPool pool_{[this](uintptr_t begin, size_t bytes) {
    for (size_t page = (begin - kBegin) / kPage; page < (begin + bytes - kBegin) / kPage; ++page) {
      EXPECT_FALSE(pages_.at(page).is_used) << page;
      EXPECT_TRUE(pages_[page].is_warm) << page;
      pages_[page].is_warm = false;
    }
  }};
};

TEST_F(Pages, AreUsedAgainWhileTheyAreWarm) {
  add(10000);
  const int64_t first = take(3000);
  give_back(static_cast<size_t>(first), 3000);
  EXPECT_EQ(take(1000), first);
  EXPECT_EQ(take(2000), first + 1000);
  EXPECT_EQ(fresh_, 3000u);
}

TEST_F(Pages, OfNeighboursAreOneRange) {
  add(3000);
  add(3000);
  EXPECT_EQ(take(6000), 0);
  for (const size_t first : {0, 4000, 2000}) give_back(first, 2000);
  EXPECT_EQ(take(6000), 0);
  EXPECT_EQ(take(1), -1);
  EXPECT_EQ(fresh_, 6000u);
}

// A step in which every block is larger than the holes before it: without giving pages back, memory would grow with each.
TEST_F(Pages, InHolesThatFitNothingAreGivenBack) {
  add(200000);
  for (size_t size = 3000; size < 3060; ++size) {
    const int64_t large = take(size);
    take(1);
    give_back(static_cast<size_t>(large), size);
  }
  EXPECT_LE((pool_.used() + pool_.warm()) / kPage, 3119 + 3119 / 64 + 1024);
}

TEST_F(Pages, LeaveThePoolWhenTheyAreFree) {
  add(1000);
  take(100);
  const int64_t second = take(200);
  take(300);
  give_back(static_cast<size_t>(second), 200);
  size_t bytes = 0;
  pool_.remove_free([&bytes](uintptr_t, size_t more) { bytes += more; });
  EXPECT_EQ(bytes, 600 * kPage);
  EXPECT_EQ(pool_.warm(), 0u);
  EXPECT_EQ(pool_.used(), 400 * kPage);
  EXPECT_EQ(pool_.take(kPage), 0u);
}

TEST_F(Pages, AgreeWithTheBooksInAnyOrder) {
  std::mt19937 random(1);
  add(4000);
  std::vector<std::pair<size_t, size_t>> blocks;
  for (int i = 0; i < 3000; ++i) {
    if (!blocks.empty() && random() % 100 < 48) {
      const size_t which = random() % blocks.size();
      give_back(blocks[which].first, blocks[which].second);
      blocks.erase(blocks.begin() + static_cast<std::ptrdiff_t>(which));
      continue;
    }
    const size_t pages = 1 + random() % (random() % 4 == 0 ? 900 : 90);
    const int64_t first = take(pages);
    if (first < 0) add(std::max<size_t>(pages, 500));
    else blocks.emplace_back(first, pages);
  }
  while (!blocks.empty()) {
    give_back(blocks.back().first, blocks.back().second);
    blocks.pop_back();
  }
  EXPECT_EQ(pool_.used(), 0u);
}

}  // namespace
}  // namespace zt::host
