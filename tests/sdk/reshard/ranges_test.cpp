// Compares the bytes that a copy list reads with marks on every byte.
#include "zt/reshard/ranges.h"

#include "sdk/reshard/random_regions.h"
#include "support/exhaustive.h"

namespace zt::test {
namespace {

using Runs = std::vector<CopyRun>;  // in a test case, Run is GoogleTest's

constexpr int64_t kMiB = int64_t{1} << 20;

TEST(Ranges, BlocksAreWhole) {
  const Runs runs{{0, 10, 0, 5, 1, 0, 0}, {0, kMiB, 5, 1, 1, 0, 0}};
  EXPECT_EQ(block_ranges(runs, 4, 16 * kMiB, kMiB), (std::vector<PieceBytes>{{0, kMiB}, {4 * kMiB, 5 * kMiB}}));
  EXPECT_EQ(block_ranges(runs, 4, 4 * kMiB + 4, kMiB), (std::vector<PieceBytes>{{0, kMiB}, {4 * kMiB, 4 * kMiB + 4}}))
      << "the last block is shorter";
  EXPECT_TRUE(block_ranges({}, 4, 16 * kMiB, kMiB).empty());
}

TEST(Ranges, BlocksThatTouchAreJoined) {
  const Runs runs{{0, kMiB - 1, 0, 2, 1, 0, 0}, {0, 2 * kMiB, 0, kMiB, 1, 0, 0}};
  EXPECT_EQ(block_ranges(runs, 1, 9 * kMiB, kMiB), (std::vector<PieceBytes>{{0, 3 * kMiB}}));
}

TEST(Ranges, RowsAreNotCounted) {
  // A narrow column of 2^40 rows needs all bytes, in one range.
  const Runs column{{0, 3, 0, 1, int64_t{1} << 40, 1000, 1}};
  const int64_t bytes = (int64_t{1} << 40) * 1000 * 2;
  EXPECT_EQ(block_ranges(column, 2, bytes, kMiB), (std::vector<PieceBytes>{{0, bytes}}));
  // Of each row of 4 MiB, one block is needed.
  const Runs wide{{0, 0, 0, 8, 100, kMiB, 8}};
  EXPECT_EQ(block_ranges(wide, 4, 400 * kMiB, kMiB).size(), 100U);
}

// A random copy list, and the number of elements of its second saved region.
struct Case {
  CopyList copies;
  int64_t elements;
};

Case random_case(Dice& dice) {
  const std::vector<int64_t> shape = random_shape(dice);
  const std::vector<Region> saved{random_part(dice, random_boxes(dice, shape)), random_part(dice, random_boxes(dice, shape))};
  return {make_copy_list(shape, saved, random_part(dice, random_boxes(dice, shape))), saved[1].count};
}

TEST(Ranges, BlocksAsByteByByte) {
  for (int64_t seed = 0; seed < zt::test::number_of_cases(50000); ++seed) {
    Dice dice(seed);
    const Case random = random_case(dice);
    const int64_t element_bytes = int64_t{1} << dice(4), block_bytes = element_bytes << dice(5);
    const int64_t bytes = random.elements * element_bytes;
    std::vector<char> is_wanted(bytes + block_bytes, 0);
    for (const auto& run : random.copies.runs) {
      for (int64_t t = 0; run.source == 1 && t < run.times; ++t) {
        for (int64_t i = 0; i < run.count; ++i) {
          const int64_t block = (run.from + t * run.from_stride + i) * element_bytes / block_bytes;
          for (int64_t byte = block * block_bytes; byte < std::min(bytes, (block + 1) * block_bytes); ++byte) is_wanted[byte] = 1;
        }
      }
    }
    std::vector<PieceBytes> expected;
    for (int64_t byte = 0; byte < bytes; ++byte) {
      if (is_wanted[byte] == 0) continue;
      if (expected.empty() || expected.back().end != byte) expected.push_back({byte, byte});
      expected.back().end = byte + 1;
    }
    ASSERT_EQ(block_ranges(runs_of(random.copies, 1), element_bytes, bytes, block_bytes), expected) << "seed " << seed;
  }
}

TEST(Ranges, StretchesOfAPartAsElementByElement) {
  for (int64_t seed = 0; seed < zt::test::number_of_cases(50000); ++seed) {
    Dice dice(seed);
    const Case random = random_case(dice);
    const int64_t begin = dice(random.elements + 1), end = begin + dice(random.elements - begin + 1);
    for (const auto& run : random.copies.runs) {
      std::vector<std::pair<int64_t, int64_t>> expected, found;
      for (int64_t i = 0; i < run.times * run.count; ++i) {
        const int64_t from = run.from + i / run.count * run.from_stride + i % run.count;
        if (from >= begin && from < end) expected.emplace_back(from, run.to + i / run.count * run.to_stride + i % run.count);
      }
      for_each_stretch(run, begin, end, [&](int64_t from, int64_t to, int64_t count) {
        for (int64_t i = 0; i < count; ++i) found.emplace_back(from + i, to + i);
      });
      ASSERT_EQ(found, expected) << "seed " << seed;
    }
  }
}

TEST(Ranges, RunsOfOneSource) {
  const CopyList copies{{{0, 0, 0, 1, 1, 0, 0}, {2, 0, 1, 1, 1, 0, 0}, {2, 5, 2, 1, 1, 0, 0}, {7, 0, 3, 1, 1, 0, 0}}, 0};
  EXPECT_EQ(runs_of(copies, 0).size(), 1U);
  EXPECT_EQ(runs_of(copies, 1).size(), 0U);
  EXPECT_EQ(runs_of(copies, 2).size(), 2U);
  EXPECT_EQ(runs_of(copies, 2).front().from, 0);
  EXPECT_EQ(runs_of(copies, 7).size(), 1U);
  EXPECT_EQ(runs_of(copies, 8).size(), 0U);
}

}  // namespace
}  // namespace zt::test
