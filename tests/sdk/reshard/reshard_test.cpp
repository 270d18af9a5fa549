// Tests copy lists: against an enumeration of every element, for the usual layouts, and for tensors too large to enumerate.
#include "zt/reshard/reshard.h"

#include <algorithm>
#include <ctime>
#include <iostream>

#include "sdk/reshard/layouts.h"
#include "sdk/reshard/random_regions.h"
#include "support/exhaustive.h"

namespace zt::test {
namespace {

using Shape = std::vector<int64_t>;
using Runs = std::vector<CopyRun>;  // in a test case, Run is GoogleTest's

// The elements of saved regions, enumerated.
struct Held {
  Held(const Shape& shape, const std::vector<Region>& saved) : is_held(*numel_of(shape), 0) {
    for (const Region& region : saved) {
      elements.push_back(elements_of(shape, region));
      for (const int64_t element : elements.back()) is_held[element] = 1;
    }
  }

  std::vector<std::vector<int64_t>> elements;  // by region
  std::vector<char> is_held;                   // by element of the tensor
};

// Returns what is wrong with a copy list, found element by element; empty if it is right.
std::string check(const Shape& shape, const Held& held, const Region& wanted, const CopyList& copies) {
  const std::vector<int64_t> asked = elements_of(shape, wanted);
  std::vector<char> is_copied(asked.size(), 0);
  for (const CopyRun& run : copies.runs) {
    if (run.source < 0 || run.source >= static_cast<int32_t>(held.elements.size()) || run.count < 1 || run.times < 1)
      return "a run of nothing";
    if (run.times == 1 && (run.from_stride != 0 || run.to_stride != 0)) return "one stretch with strides";
    const std::vector<int64_t>& source = held.elements[run.source];
    for (int64_t i = 0; i < run.times * run.count; ++i) {
      const int64_t from = run.from + i / run.count * run.from_stride + i % run.count;
      const int64_t to = run.to + i / run.count * run.to_stride + i % run.count;
      if (from < 0 || from >= static_cast<int64_t>(source.size())) return "copies from outside the saved region";
      if (to < 0 || to >= static_cast<int64_t>(asked.size())) return "copies to outside the wanted region";
      if (source[from] != asked[to]) return "copies another element";
      if (is_copied[to]++ != 0) return "copies an element twice";
    }
  }
  int64_t missing = 0;
  for (size_t i = 0; i < asked.size(); ++i) {
    if (is_copied[i] != held.is_held[asked[i]]) return "leaves out an element";
    missing += !held.is_held[asked[i]];
  }
  if (missing != copies.missing) return "counts the missing wrong";
  const bool is_sorted = std::is_sorted(copies.runs.begin(), copies.runs.end(), [](const CopyRun& a, const CopyRun& b) {
    return a.source != b.source ? a.source < b.source : a.from < b.from;
  });
  return is_sorted ? "" : "is not sorted";
}

CopyList checked(const Shape& shape, const std::vector<Region>& saved, const Region& wanted) {
  for (const Region& region : saved) EXPECT_EQ(validate_region(shape, region), "");
  EXPECT_EQ(validate_region(shape, wanted), "");
  CopyList copies = make_copy_list(shape, saved, wanted);
  EXPECT_EQ(check(shape, Held(shape, saved), wanted, copies), "");
  return copies;
}

// Checks all copy lists from one layout to another, and returns their number of runs.
int64_t runs_between(const Shape& shape, const std::vector<Region>& saved, const std::vector<Region>& wanted) {
  int64_t runs = 0;
  for (const Region& region : wanted) {
    const CopyList copies = checked(shape, saved, region);
    EXPECT_EQ(copies.missing, 0);
    runs += static_cast<int64_t>(copies.runs.size());
  }
  return runs;
}

TEST(Reshard, FlatToFlatIsOneRunAPair) {
  EXPECT_EQ(runs_between({7, 11}, flat({7, 11}, 3), flat({7, 11}, 3)), 3);
  EXPECT_EQ(runs_between({7, 11}, flat({7, 11}, 2), flat({7, 11}, 3)), 4);
  EXPECT_EQ(runs_between({7, 11}, flat({7, 11}, 5), {whole_region({7, 11})}), 5);
}

TEST(Reshard, FlatToRows) {
  EXPECT_EQ(runs_between({8, 10}, flat({8, 10}, 4), along({8, 10}, 0, 4)), 4) << "the same cuts in other words";
  EXPECT_EQ(runs_between({9, 10}, flat({9, 10}, 4), along({9, 10}, 0, 3)), 6);
}

TEST(Reshard, ColumnsToFlat) {
  // Each wanted half has 4 whole rows from both halves of the columns: each such rectangle is one run.
  EXPECT_EQ(runs_between({8, 10}, along({8, 10}, 1, 2), flat({8, 10}, 2)), 4);
  // Thirds of 8 rows divide rows: one run for the whole rows between, and one for each divided row.
  EXPECT_LE(runs_between({8, 10}, along({8, 10}, 1, 2), flat({8, 10}, 3)), 2 * 3 * 3);
  EXPECT_EQ(runs_between({8, 10}, along({8, 10}, 1, 5), {whole_region({8, 10})}), 5);
}

TEST(Reshard, ColumnIsOneRun) {
  const CopyList copies = checked({6, 5}, {whole_region({6, 5})}, {{{{1, 2}, {5, 3}}}, 0, 4});
  EXPECT_EQ(copies.runs, (Runs{{0, 7, 0, 1, 4, 5, 1}}));
}

TEST(Reshard, FusedQueriesKeysAndValues) {
  const Shape shape{24, 5};
  EXPECT_EQ(runs_between(shape, fused(8, 5, 2), {whole_region(shape)}), 6) << "three parts of two ranks";
  EXPECT_EQ(runs_between(shape, fused(8, 5, 2), fused(8, 5, 4)), 12);
  EXPECT_EQ(runs_between(shape, {whole_region(shape)}, fused(8, 5, 4)), 12);
  EXPECT_EQ(runs_between(shape, fused(8, 5, 1), {whole_region(shape)}), 1) << "boxes that follow each other are joined";
  // The same boxes divided for data parallelism are intervals of one order, though not of the tensor's.
  EXPECT_EQ(runs_between(shape, cut(fused(8, 5, 2), 3), cut(fused(8, 5, 2), 2)), 8);
  runs_between(shape, cut(fused(8, 5, 4), 3), flat(shape, 7));
}

TEST(Reshard, CutColumnsToTheSameColumnsAreFlat) {
  const Shape shape{12, 10};
  EXPECT_EQ(runs_between(shape, cut(along(shape, 1, 2), 7), cut(along(shape, 1, 2), 7)), 14);
  runs_between(shape, cut(along(shape, 1, 2), 7), cut(along(shape, 1, 5), 3));
}

TEST(Reshard, PipelineMovesWholeTensors) {
  const std::vector<Region> nobody_and_one{{}, whole_region({5, 3}), {}};
  EXPECT_EQ(checked({5, 3}, nobody_and_one, whole_region({5, 3})).runs, (Runs{{1, 0, 0, 15, 1, 0, 0}}));
  EXPECT_TRUE(checked({5, 3}, nobody_and_one, {}).runs.empty());
}

TEST(Reshard, ExpertsAreCutByTheirFirstDim) {
  const Shape shape{8, 3, 5};
  EXPECT_EQ(runs_between(shape, along(shape, 0, 4), along(shape, 0, 2)), 4);
  EXPECT_EQ(runs_between(shape, along(shape, 0, 2), along(shape, 2, 5)), 10) << "experts and rows join: one run";
  EXPECT_EQ(runs_between(shape, along(shape, 1, 3), along(shape, 2, 5)), 15) << "one row of each expert";
}

TEST(Reshard, BlocksOfThreeDims) {
  const Shape shape{4, 6, 8};
  const auto blocks = [&](int64_t a, int64_t b, int64_t c) {
    std::vector<Region> regions;
    for (const Region& i : along(shape, 0, a)) {
      for (const Region& j : along(shape, 1, b)) {
        for (const Region& k : along(shape, 2, c)) {
          const Box box = intersection(intersection(i.boxes[0], j.boxes[0]), k.boxes[0]);
          regions.push_back({{box}, 0, box.numel()});
        }
      }
    }
    return regions;
  };
  EXPECT_EQ(runs_between(shape, blocks(2, 2, 2), blocks(2, 2, 2)), 8);
  // Each pair shares 2 x 3 x 4 elements, and no dims can be joined: one run per index of the dim of size 2.
  EXPECT_EQ(runs_between(shape, blocks(2, 2, 2), {whole_region(shape)}), 8 * 2);
  runs_between(shape, blocks(2, 3, 2), blocks(4, 2, 1));
}

TEST(Reshard, FewerElementsThanRanks) {
  EXPECT_EQ(runs_between({3}, flat({3}, 8), flat({3}, 5)), 3);
  EXPECT_EQ(runs_between({}, flat({}, 4), flat({}, 3)), 1) << "a tensor without dims has one element";
  EXPECT_EQ(runs_between({2, 0, 3}, flat({2, 0, 3}, 2), flat({2, 0, 3}, 3)), 0);
}

TEST(Reshard, ReplicasAreReadOnce) {
  const std::vector<Region> columns = along({6, 8}, 1, 2);
  EXPECT_EQ(runs_between({6, 8}, {columns[0], columns[1], columns[0], columns[1]}, {whole_region({6, 8})}), 2);
  const Region whole = whole_region({6, 8});
  EXPECT_EQ(runs_between({6, 8}, {whole, whole, whole}, along({6, 8}, 1, 2)), 2);
}

TEST(Reshard, MissingElementsAreCounted) {
  const std::vector<Region> columns = along({6, 8}, 1, 4);
  EXPECT_EQ(checked({6, 8}, {columns[0], columns[3]}, whole_region({6, 8})).missing, 24);
  EXPECT_EQ(checked({6, 8}, {}, whole_region({6, 8})).missing, 48);
  EXPECT_EQ(checked({}, {}, whole_region({})).missing, 1);
  std::vector<Region> parts = flat({6, 8}, 4);
  parts.erase(parts.begin() + 1);
  EXPECT_EQ(checked({6, 8}, parts, whole_region({6, 8})).missing, 12);
}

TEST(Reshard, RandomRegionsAsElementByElement) {
  int64_t pairs = 0, runs = 0, with_gaps = 0;
  for (int64_t seed = 0; pairs < zt::test::number_of_cases(1000000); ++seed) {
    Dice dice(seed);
    const Shape shape = random_shape(dice);
    std::vector<Region> saved(dice(6));
    for (Region& region : saved)
      region = random_part(dice, dice(2) == 0 && &region != &saved[0] ? saved[0].boxes : random_boxes(dice, shape));
    const Held held(shape, saved);
    for (int i = 0; i < 4; ++i) {
      const bool is_alike = !saved.empty() && dice(3) == 0;
      const Region wanted = random_part(dice, is_alike ? saved[0].boxes : random_boxes(dice, shape));
      const CopyList copies = make_copy_list(shape, saved, wanted);
      const std::string problem = check(shape, held, wanted, copies);
      pairs += std::max<int64_t>(1, static_cast<int64_t>(saved.size()));
      runs += static_cast<int64_t>(copies.runs.size());
      with_gaps += copies.missing > 0;
      if (problem.empty()) continue;
      std::string text = "seed " + std::to_string(seed) + ": the copy list " + problem + "; shape " + text_of(shape);
      for (const Region& region : saved) text += "\n  saved " + text_of(region);
      FAIL() << text << "\n  wanted " << text_of(wanted);
    }
  }
  std::cout << pairs << " pairs of regions, " << runs << " runs, " << with_gaps << " copy lists with missing elements\n";
}

// Measures processor time.
class Stopwatch {
 public:
  double seconds() const { return static_cast<double>(std::clock() - start_) / CLOCKS_PER_SEC; }

 private:
  std::clock_t start_ = std::clock();
};

TEST(Reshard, ElementsCostNothing) {
  const Shape shape{1 << 20, 1 << 20};
  EXPECT_EQ(make_copy_list(shape, along(shape, 1, 8), along(shape, 1, 2)[1]).runs.size(), 4U);
  EXPECT_EQ(make_copy_list(shape, along(shape, 1, 2), flat(shape, 3)[1]).runs.size(), 6U) << "cut rows at both ends, of both";
  const Shape deep{1 << 13, 1 << 14, 1 << 13};
  EXPECT_EQ(make_copy_list(deep, along(deep, 1, 2), whole_region(deep)).runs.size(), 2U);
  const CopyList beyond = make_copy_list({int64_t{1} << 62}, flat({int64_t{1} << 62}, 2), whole_region({int64_t{1} << 62}));
  EXPECT_EQ(beyond.runs.size(), 2U);
  EXPECT_EQ(beyond.missing, 0);
}

TEST(Reshard, ThousandsOfShards) {
  const Shape shape{32003, 8191};
  const std::vector<Region> saved = flat(shape, 4096), wanted = flat(shape, 4095);
  int64_t runs = 0, missing = 0;
  const Stopwatch watch;
  for (const Region& region : wanted) {
    const CopyList copies = make_copy_list(shape, saved, region);
    runs += static_cast<int64_t>(copies.runs.size());
    missing += copies.missing;
  }
  std::cout << "4096 flat shards to 4095: " << runs << " runs, " << watch.seconds() / 4095 * 1e6 << " us per wanted shard\n";
  EXPECT_LE(runs, 4096 + 4095);
  EXPECT_EQ(missing, 0);

  // Divided columns to the whole tensor: most saved boxes have many neighbours.
  const std::vector<Region> columns = cut(along(shape, 1, 8), 512);
  const Stopwatch second;
  const CopyList whole = make_copy_list(shape, columns, whole_region(shape));
  std::cout << "4096 shards of columns to the whole: " << whole.runs.size() << " runs, " << second.seconds() * 1e3 << " ms\n";
  EXPECT_EQ(whole.missing, 0);
  EXPECT_LE(whole.runs.size(), 3U * 4096);
}

// The tensors of a transformer of 70 billion parameters.
std::vector<Shape> large_model() {
  std::vector<Shape> shapes{{32000, 8192}, {32000, 8192}, {8192}};
  for (int layer = 0; layer < 80; ++layer) {
    shapes.insert(shapes.end(), {{10240, 8192}, {8192, 8192}, {28672, 8192}, {28672, 8192}, {8192, 28672}, {8192}, {8192}});
  }
  return shapes;
}

TEST(Reshard, LargeModelForOneRank) {
  double seconds = 0;
  size_t runs = 0, pairs = 0;
  int64_t elements = 0;
  for (const Shape& shape : large_model()) {
    const std::vector<Region> saved = flat(shape, 1024), wanted = flat(shape, 768);
    const Stopwatch one;
    for (int state = 0; state < 3; ++state) {  // parameters and two moments
      const CopyList copies = make_copy_list(shape, saved, wanted[500]);
      EXPECT_EQ(copies.missing, 0);
      runs += copies.runs.size();
      pairs += 3;  // 1024 shards to 768: a wanted shard overlaps at most three saved ones
    }
    seconds += one.seconds();
    elements += *numel_of(shape);
  }
  std::cout << elements / 1e9 << " G parameters, 1024 ranks to 768: " << runs << " runs, " << seconds * 1e3 << " ms for a rank\n";
  EXPECT_LE(runs, pairs);
}

}  // namespace
}  // namespace zt::test
