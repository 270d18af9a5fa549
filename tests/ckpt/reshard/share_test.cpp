// Tests which rank writes what: every element is written once, by a rank that holds it, and the bytes per rank are balanced.
#include "reshard/share.h"

#include <algorithm>
#include <ctime>
#include <iostream>
#include <numeric>
#include <set>

#include "sdk/reshard/random_regions.h"
#include "support/exhaustive.h"

namespace zt::ckpt::test {
namespace {

using zt::test::Dice;
using zt::test::elements_of;
using zt::test::random_boxes;
using zt::test::random_part;
using zt::test::random_shape;
using zt::test::text_of;
using Shape = std::vector<int64_t>;
using Shares = std::vector<std::vector<WriteShare>>;

HeldTensor held_by(const Region& region, const std::vector<int32_t>& ranks, int64_t element_bytes = 4) {
  HeldTensor tensor{element_bytes};
  for (const int32_t rank : ranks) tensor.add(rank, region);
  return tensor;
}

std::vector<int32_t> first_ranks(int32_t n) {
  std::vector<int32_t> ranks(n);
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

int64_t bytes_of(const std::vector<HeldTensor>& tensors, const std::vector<WriteShare>& shares) {
  int64_t bytes = 0;
  for (const WriteShare& share : shares) bytes += share.region.count * tensors[share.tensor].element_bytes;
  return bytes;
}

std::vector<int64_t> loads_of(const std::vector<HeldTensor>& tensors, const Shares& shares) {
  std::vector<int64_t> loads;
  for (const auto& mine : shares) loads.push_back(bytes_of(tensors, mine));
  return loads;
}

size_t pieces_of(const Shares& shares) {
  size_t pieces = 0;
  for (const auto& mine : shares) pieces += mine.size();
  return pieces;
}

TEST(WriteShare, OneRankWritesAll) {
  const Region whole = whole_region({5, 3});
  const std::vector<HeldTensor> tensors{held_by(whole, {0}), held_by(whole_region({}), {0}), held_by(whole_region({0, 3}), {0})};
  EXPECT_EQ(share_writing(tensors, 1), (Shares{{{0, whole}, {1, whole_region({})}}})) << "nobody writes nothing";
}

TEST(WriteShare, WhatOneHoldsItWrites) {
  HeldTensor tensor{4};
  const Box box{{0, 0}, {5, 3}};
  tensor.add(0, {{box}, 0, 7});
  tensor.add(2, {{box}, 7, 8});
  EXPECT_EQ(share_writing(std::vector{tensor}, 3), (Shares{{{0, {{box}, 0, 7}}}, {}, {{0, {{box}, 7, 8}}}}));
}

TEST(WriteShare, ReplicasOfALargeTensorAreCutAtWholeUnits) {
  const int64_t unit = kShareUnit / 2;
  const std::vector<HeldTensor> tensors{held_by(whole_region({7 * unit + 10}), {0, 1, 3}, 2)};
  const Box box{{0}, {7 * unit + 10}};
  EXPECT_EQ(
      share_writing(tensors, 4),
      (Shares{{{0, {{box}, 0, 2 * unit}}}, {{0, {{box}, 2 * unit, 3 * unit}}}, {}, {{0, {{box}, 5 * unit, 2 * unit + 10}}}}));
}

TEST(WriteShare, SmallTensorsStayWhole) {
  std::vector<HeldTensor> tensors;
  for (int i = 0; i < 64; ++i) tensors.push_back(held_by(whole_region({1000 + i % 5}), first_ranks(8)));
  const Shares shares = share_writing(tensors, 8);
  EXPECT_EQ(pieces_of(shares), 64U);
  for (const auto& mine : shares) EXPECT_EQ(mine.size(), 8U);
}

TEST(WriteShare, WhoHasLessAlreadyTakesMore) {
  const int64_t unit = kShareUnit / 4;
  std::vector<HeldTensor> tensors{held_by(whole_region({6 * unit}), {0, 1, 2}), held_by(whole_region({4 * unit}), {1})};
  tensors.push_back(held_by(whole_region({9 * unit}), {2}));
  // 19 units in all: rank 2 has 9 already, so ranks 0 and 1 get 5 each.
  EXPECT_EQ(loads_of(tensors, share_writing(tensors, 3)), (std::vector<int64_t>{5 * kShareUnit, 5 * kShareUnit, 9 * kShareUnit}));
}

TEST(WriteShare, TiedTensorsCutInTwoWays) {
  // Two pipeline stages hold the same tensor, divided into different flat ranges.
  HeldTensor tensor{4};
  const Box box{{0, 0}, {10, 10}};
  tensor.add(0, {{box}, 0, 50});
  tensor.add(1, {{box}, 50, 50});
  tensor.add(2, {{box}, 0, 60});
  tensor.add(3, {{box}, 60, 40});
  const Shares shares = share_writing(std::vector{tensor}, 4);
  EXPECT_EQ(pieces_of(shares), 3U);
  int64_t written = 0;
  for (const auto& mine : shares) written += bytes_of(std::vector{tensor}, mine);
  EXPECT_EQ(written, 400);
}

// Tensors of random sizes, each held by all ranks of a set. Two sets are disjoint, or one contains the other: ranks [0, n),
// halves of them, and halves of these.
struct Job {
  std::vector<HeldTensor> tensors;
  std::vector<std::pair<int32_t, int32_t>> sets;  // per tensor: [begin, end) of ranks
  std::vector<int64_t> bytes;                     // per tensor
};

Job random_job(Dice& dice, int32_t ranks, int tensors) {
  Job job;
  for (int i = 0; i < tensors; ++i) {
    const int32_t size = ranks >> dice(3), begin = static_cast<int32_t>(dice(ranks / size)) * size;
    const int64_t elements = dice(3) == 0 ? dice(8 * kShareUnit) : dice(100000);
    std::vector<int32_t> holders;
    for (int32_t rank = begin; rank < begin + size; ++rank) holders.push_back(rank);
    job.tensors.push_back(held_by(whole_region({elements}), holders));
    job.sets.emplace_back(begin, begin + size);
    job.bytes.push_back(4 * elements);
  }
  return job;
}

// Returns a lower bound of the bytes that the busiest rank writes in any division: the ranks of each set must write all tensors
// that only they hold.
int64_t least_for_busiest(const Job& job) {
  int64_t least = 0;
  for (const auto& [begin, end] : job.sets) {
    int64_t bytes = 0;
    for (size_t i = 0; i < job.sets.size(); ++i) {
      if (job.sets[i].first >= begin && job.sets[i].second <= end) bytes += job.bytes[i];
    }
    least = std::max(least, bytes / (end - begin));
  }
  return least;
}

TEST(WriteShare, BusiestRankIsNearTheLeastPossible) {
  double worst = 0;
  for (int64_t seed = 0; seed < zt::test::number_of_cases(2000); ++seed) {
    Dice dice(seed);
    const Job job = random_job(dice, 8, 1 + static_cast<int>(dice(40)));
    const Shares shares = share_writing(job.tensors, 8);
    const std::vector<int64_t> loads = loads_of(job.tensors, shares);
    EXPECT_EQ(std::accumulate(loads.begin(), loads.end(), int64_t{0}),
              std::accumulate(job.bytes.begin(), job.bytes.end(), int64_t{0}));
    const int64_t excess = *std::max_element(loads.begin(), loads.end()) - least_for_busiest(job);
    ASSERT_LE(excess, 3 * kShareUnit + 1) << "seed " << seed << ": sets of 8, 4 and 2 ranks contain each other";
    worst = std::max(worst, static_cast<double>(excess) / kShareUnit);
    const std::set<std::pair<int32_t, int32_t>> sets(job.sets.begin(), job.sets.end());
    ASSERT_LE(pieces_of(shares), job.tensors.size() + sets.size() * 7) << "seed " << seed;
  }
  std::cout << "busiest rank: at most " << worst << " MiB above the least possible\n";
}

TEST(WriteShare, EqualHoldersAreEven) {
  for (int64_t seed = 0; seed < zt::test::number_of_cases(2000); ++seed) {
    Dice dice(seed);
    const int32_t ranks = 1 + static_cast<int32_t>(dice(17));
    std::vector<HeldTensor> tensors;
    for (int64_t i = dice(30); i >= 0; --i)
      tensors.push_back(held_by(whole_region({dice(4) == 0 ? dice(20 * kShareUnit) : dice(300000)}), first_ranks(ranks), 2));
    const std::vector<int64_t> loads = loads_of(tensors, share_writing(tensors, ranks));
    const auto [least, most] = std::minmax_element(loads.begin(), loads.end());
    ASSERT_LE(*most - *least, 2 * kShareUnit + 1) << "seed " << seed;
  }
}

// Returns an error text unless every held element is written once, by a rank that holds it.
std::string check_shares(const Shape& shape, const std::vector<std::pair<int32_t, Region>>& held, const Shares& shares,
                         int32_t tensor) {
  std::vector<std::set<int64_t>> holds(shares.size());
  std::set<int64_t> all, written;
  for (const auto& [rank, region] : held) {
    for (const int64_t element : elements_of(shape, region)) {
      holds[rank].insert(element);
      all.insert(element);
    }
  }
  for (size_t rank = 0; rank < shares.size(); ++rank) {
    for (const WriteShare& share : shares[rank]) {
      if (share.tensor != tensor) continue;
      if (!validate_region(shape, share.region).empty() || share.region.count == 0) return "a region that is none";
      for (const int64_t element : elements_of(shape, share.region)) {
        if (holds[rank].count(element) == 0) return "a rank writes what it does not hold";
        if (!written.insert(element).second) return "an element is written twice";
      }
    }
  }
  return written == all ? "" : "an element is not written";
}

TEST(WriteShare, RandomRegionsAsElementByElement) {
  for (int64_t seed = 0; seed < zt::test::number_of_cases(10000); ++seed) {
    Dice dice(seed);
    const int32_t ranks = 1 + static_cast<int32_t>(dice(5));
    std::vector<HeldTensor> tensors;
    std::vector<Shape> shapes;
    std::vector<std::vector<std::pair<int32_t, Region>>> held;
    for (int64_t t = dice(3); t >= 0; --t) {
      // Elements as large as half a unit, so that tiny tensors are divided, too.
      tensors.push_back({dice(2) == 0 ? kShareUnit / 2 : 4});
      shapes.push_back(random_shape(dice));
      held.emplace_back();
      const bool has_other_boxes = dice(2) == 0;
      std::vector<Box> boxes = random_boxes(dice, shapes.back());
      for (int64_t i = dice(8); i > 0; --i) {
        if (has_other_boxes && dice(2) == 0) boxes = random_boxes(dice, shapes.back());
        held.back().emplace_back(static_cast<int32_t>(dice(ranks)), random_part(dice, boxes));
        tensors.back().add(held.back().back().first, held.back().back().second);
      }
    }
    const Shares shares = share_writing(tensors, ranks);
    for (size_t t = 0; t < tensors.size(); ++t) {
      const std::string problem = check_shares(shapes[t], held[t], shares, static_cast<int32_t>(t));
      std::string text;
      for (const auto& [rank, region] : held[t]) text += "\n  rank " + std::to_string(rank) + " " + text_of(region);
      ASSERT_EQ(problem, "") << "seed " << seed << ", shape " << text_of(shapes[t]) << text;
    }
  }
}

TEST(WriteShare, OrderOfHoldersDoesNotMatter) {
  const Region whole = whole_region({10 * kShareUnit});
  const HeldTensor one = held_by(whole, {0, 1, 2, 3}), other = held_by(whole, {2, 0, 3, 1});
  EXPECT_EQ(share_writing(std::vector{one, one}, 4), share_writing(std::vector{other, other}, 4));
}

TEST(WriteShare, LargeModelOfManyRanks) {
  // 70 billion parameters and two moments on 1024 ranks. Flat ranges have 2 holders each; norms are held by all ranks.
  const int32_t ranks = 1024;
  std::vector<HeldTensor> tensors;
  for (int layer = 0; layer < 3 * 80; ++layer) {
    for (const Shape& shape : std::vector<Shape>{{10240, 8192}, {8192, 8192}, {28672, 8192}, {28672, 8192}, {8192, 28672}}) {
      HeldTensor tensor{4};
      const Region whole = whole_region(shape);
      const int64_t chunk = whole.count / 512;
      for (int32_t rank = 0; rank < ranks; ++rank) tensor.add(rank, {whole.boxes, rank / 2 * chunk, chunk});
      tensors.push_back(std::move(tensor));
    }
    tensors.push_back(held_by(whole_region({8192}), first_ranks(ranks)));
  }
  const std::clock_t start = std::clock();
  const Shares shares = share_writing(tensors, ranks);
  const double seconds = static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
  const std::vector<int64_t> loads = loads_of(tensors, shares);
  const auto [least, most] = std::minmax_element(loads.begin(), loads.end());
  std::cout << tensors.size() << " tensors on " << ranks << " ranks: " << pieces_of(shares) << " pieces, " << *least / 1e6
            << " to " << *most / 1e6 << " MB per rank, " << seconds << " s\n";
  EXPECT_LE(*most - *least, 3 * kShareUnit);
  // Each pair of ranks divides its bytes once. The norms are divided among all ranks.
  EXPECT_LE(pieces_of(shares), 3U * 80 * 5 * 512 + 512 + 3 * 80 + 1023);
}

}  // namespace
}  // namespace zt::ckpt::test
