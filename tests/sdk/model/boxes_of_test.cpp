// Which boxes of a parameter each rank holds, if mesh axes cut it.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <numeric>
#include <random>

#include "zt/model/param.h"

namespace zt {
namespace {

TEST(ShareOf, CutsIntoSharesAsEvenAsCanBe) {
  for (const int64_t total : {0, 1, 2, 5, 7, 12, 127}) {
    for (const int parts : {1, 2, 3, 4, 5, 8}) {
      int64_t begin = 0;
      for (int index = 0; index < parts; ++index) {
        const Share share = share_of(total, parts, index);
        EXPECT_EQ(share.begin, begin);
        EXPECT_LE(share.count, share_of(total, parts, 0).count);
        EXPECT_GE(share.count, total / parts);
        begin = share.end();
      }
      EXPECT_EQ(begin, total);
    }
  }
}

AxisPlacement cut(const std::string& axis, int dim, int parts, std::vector<CutGroup> groups = {}) {
  return {axis, Placement::sharded, dim, parts, std::move(groups)};
}

Coord at_rank(std::vector<AxisSize> axes, int rank) {
  int size = 1;
  for (const AxisSize& axis : axes) size *= axis.size;
  return {MeshShape(std::move(axes), size), rank};
}

TEST(BoxesOf, QueriesKeysAndValuesAreCutByHeads) {
  const std::vector<AxisPlacement> placements{cut("tp", 0, 2, {{6, 2}, {4, 2}, {4, 1}})};  // 3 query heads, 2 key heads
  const auto boxes = [&](int rank) { return boxes_of({14, 5}, placements, at_rank({{"tp", 2}}, rank)); };
  EXPECT_EQ(boxes(0), (std::vector<Box>{{{0, 0}, {4, 5}}, {{6, 0}, {8, 5}}, {{10, 0}, {12, 5}}}));
  EXPECT_EQ(boxes(1), (std::vector<Box>{{{4, 0}, {6, 5}}, {{8, 0}, {10, 5}}, {{12, 0}, {14, 5}}}));
  EXPECT_EQ(local_shape_of({14, 5}, placements, at_rank({{"tp", 2}}, 0)), (std::vector<int64_t>{8, 5}));
  EXPECT_EQ(local_shape_of({14, 5}, placements, at_rank({{"tp", 2}}, 1)), (std::vector<int64_t>{6, 5}));
}

TEST(BoxesOf, RangesThatTouchAreOneBox) {
  const std::vector<AxisPlacement> placements{cut("tp", 0, 1, {{6, 2}, {4, 2}})};
  EXPECT_EQ(boxes_of({10, 5}, placements, {}), (std::vector<Box>{{{0, 0}, {10, 5}}}));
}

TEST(BoxesOf, ARankWithoutRowsHasNoBox) {
  const std::vector<AxisPlacement> placements{cut("tp", 0, 3)};
  EXPECT_EQ(boxes_of({2, 4}, placements, at_rank({{"tp", 3}}, 1)), (std::vector<Box>{{{1, 0}, {2, 4}}}));
  EXPECT_TRUE(boxes_of({2, 4}, placements, at_rank({{"tp", 3}}, 2)).empty());
  EXPECT_EQ(local_shape_of({2, 4}, placements, at_rank({{"tp", 3}}, 2)), (std::vector<int64_t>{0, 4}));
  EXPECT_EQ(boxes_of({}, {}, {}), (std::vector<Box>{Box{}})) << "a tensor without dims has one element";
}

TEST(BoxesOf, SeveralAxesCutADimAsOne) {
  const std::vector<AxisPlacement> placements{cut("ep", 0, 2), cut("tp", 0, 2)};
  for (int rank = 0; rank < 4; ++rank) {
    const Share share = share_of(7, 4, rank);
    EXPECT_EQ(boxes_of({7}, placements, at_rank({{"ep", 2}, {"tp", 2}}, rank)),
              (std::vector<Box>{{{share.begin}, {share.end()}}}));
  }
}

class RandomCuts {
 public:
  explicit RandomCuts(uint32_t seed) : engine_(seed) {
    axes_ = {{"a", between(1, 3)}, {"b", between(1, 4)}};
    shape.resize(static_cast<size_t>(between(1, 3)));
    for (int64_t& size : shape) size = between(1, 7);
    for (const AxisSize& axis : axes_) {
      const int dim = between(0, static_cast<int>(shape.size()) - 1);
      placements.push_back(cut(axis.name, dim, axis.size, groups_of(dim)));
    }
  }

  int ranks() const { return axes_[0].size * axes_[1].size; }
  Coord coord(int rank) const { return at_rank(axes_, rank); }

  std::vector<int64_t> shape;
  std::vector<AxisPlacement> placements;

 private:
  int between(int low, int high) { return std::uniform_int_distribution(low, high)(engine_); }

  // Both axes may cut one dim, in the same groups then.
  std::vector<CutGroup> groups_of(int dim) {
    for (const AxisPlacement& other : placements) {
      if (other.dim == dim) return other.groups;
    }
    std::vector<CutGroup> groups;
    int64_t size = 0;
    for (int count = between(0, 3); count > 0; --count) {
      const int unit = between(1, 3);
      groups.push_back({int64_t{unit} * between(0, 4), unit});
      size += groups.back().size;
    }
    if (!groups.empty()) shape[static_cast<size_t>(dim)] = size;
    return groups;
  }

  std::mt19937 engine_;
  std::vector<AxisSize> axes_;
};

// The rows of dim `dim` of a rank, told apart by a tensor of places along that dim alone.
at::Tensor rows_of(const RandomCuts& cuts, size_t dim, const Coord& coord) {
  std::vector<AxisPlacement> own;
  for (AxisPlacement placement : cuts.placements) {
    if (placement.dim != static_cast<int>(dim)) continue;
    placement.dim = 0;
    own.push_back(placement);
  }
  std::vector<at::Tensor> rows{at::empty({0}, at::kLong)};
  for (const Box& box : boxes_of({cuts.shape[dim]}, own, coord)) rows.push_back(at::arange(box.begin[0], box.end[0], at::kLong));
  return at::cat(rows);
}

TEST(BoxesOf, RandomCutsCoverTheTensorOnceInRowMajorOrder) {
  for (uint32_t seed = 0; seed < 300; ++seed) {
    const RandomCuts cuts(seed);
    const int64_t numel = std::accumulate(cuts.shape.begin(), cuts.shape.end(), int64_t{1}, std::multiplies<>());
    const at::Tensor places = at::arange(numel, at::kLong).view(cuts.shape);
    std::vector<int> holders(static_cast<size_t>(numel), 0);
    const auto room = at::zeros(local_shape_of(cuts.shape, cuts.placements, {}), at::kByte).numel();
    for (int rank = 0; rank < cuts.ranks(); ++rank) {
      const Coord coord = cuts.coord(rank);
      at::Tensor wanted = places;
      for (size_t dim = 0; dim < cuts.shape.size(); ++dim)
        wanted = wanted.index_select(static_cast<int64_t>(dim), rows_of(cuts, dim, coord));
      ASSERT_EQ(wanted.sizes().vec(), local_shape_of(cuts.shape, cuts.placements, coord)) << seed;
      ASSERT_LE(wanted.numel(), room) << seed;
      std::vector<int64_t> found;
      for_each_run(boxes_of(cuts.shape, cuts.placements, coord), cuts.shape, 0, wanted.numel(), [&](const BoxRun& run) {
        ASSERT_EQ(run.in_boxes, static_cast<int64_t>(found.size()));
        for (int64_t i = 0; i < run.count; ++i) found.push_back(run.in_tensor + i);
      });
      const at::Tensor flat = wanted.contiguous();
      ASSERT_EQ(found, std::vector<int64_t>(flat.const_data_ptr<int64_t>(), flat.const_data_ptr<int64_t>() + flat.numel()))
          << seed;
      for (const int64_t place : found) ++holders[static_cast<size_t>(place)];
    }
    EXPECT_EQ(holders, std::vector<int>(static_cast<size_t>(numel), 1)) << "seed " << seed;
  }
}

TEST(BoxesOf, APartOfTheRunsBeginsAndEndsInAnyBox) {
  const std::vector<Box> boxes{{{0, 0}, {2, 2}}, {{3, 1}, {4, 3}}};
  for (int64_t begin = 0; begin <= 6; ++begin) {
    for (int64_t end = begin; end <= 6; ++end) {
      std::vector<int64_t> found;
      for_each_run(boxes, {4, 3}, begin, end, [&](const BoxRun& run) {
        EXPECT_EQ(run.in_boxes, begin + static_cast<int64_t>(found.size()));
        for (int64_t i = 0; i < run.count; ++i) found.push_back(run.in_tensor + i);
      });
      const std::vector<int64_t> all{0, 1, 3, 4, 10, 11};
      EXPECT_EQ(found, std::vector<int64_t>(all.begin() + begin, all.begin() + end));
    }
  }
}

}  // namespace
}  // namespace zt
