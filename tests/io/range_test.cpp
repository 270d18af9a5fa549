#include <gtest/gtest.h>

#include "zt/io/block_io.h"

namespace zt::io {

namespace {

using Pairs = std::vector<std::pair<int64_t, int64_t>>;

Pairs gaps(const std::vector<FileRange>& taken, int64_t bytes) {
  Pairs pairs;
  for (const FileRange& range : gaps_between(taken, bytes)) pairs.emplace_back(range.offset, range.bytes);
  return pairs;
}

TEST(Range, GapsBetween) {
  EXPECT_EQ(gaps({}, 0), Pairs{});
  EXPECT_EQ(gaps({}, 10), (Pairs{{0, 10}}));
  EXPECT_EQ(gaps({{0, 10}}, 10), Pairs{});
  EXPECT_EQ(gaps({{6, 2}, {2, 3}}, 10), (Pairs{{0, 2}, {5, 1}, {8, 2}})) << "in any order";
  EXPECT_EQ(gaps({{2, 3}, {5, 5}}, 10), (Pairs{{0, 2}})) << "no empty gaps";
  EXPECT_EQ(gaps({{4, 0}}, 10), (Pairs{{0, 10}})) << "empty ranges take nothing";
}

}  // namespace

}  // namespace zt::io
