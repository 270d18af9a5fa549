// How a group is divided into levels.
#include "two_level/levels.h"

#include <gtest/gtest.h>

#include "support/message.h"

namespace zt::comm {

namespace {

TEST(Levels, WhyNot) {
  const auto fixed = [](const std::vector<int>& nodes) { return why_not_two_level(nodes, SumOrder::fixed); };
  EXPECT_EQ(fixed({0, 0, 1, 1}), "");
  EXPECT_EQ(fixed({7, 7, 2, 2, 5, 5}), "");
  EXPECT_CONTAINS(fixed({0, 0, 0, 0}), "4 ranks, all on one node, so there is no second level: take backend = \"shm\"");
  EXPECT_CONTAINS(fixed({3}), "all on one node");
  EXPECT_CONTAINS(fixed({0, 1, 0, 1}), "ranks 0 and 2 of the axis are on one node and rank 1 between them is on another");
  EXPECT_CONTAINS(fixed({0, 1, 0, 1}), "take backend = \"mpi\"");
  EXPECT_CONTAINS(fixed({0, 0, 1, 2, 2, 1}), "ranks 2 and 5 of the axis are on one node and rank 3");
  EXPECT_CONTAINS(fixed({0, 0, 0, 1}), "rank 3 is on a node with 1 of the axis's ranks, rank 0 on one with 3");
  EXPECT_CONTAINS(fixed({0, 1, 2}), "each of the 3 ranks is on a node of its own");
  EXPECT_CONTAINS(fixed({0, 0, 0, 1, 1, 1}), "every node has 3 ranks, which is no power of two");
  EXPECT_CONTAINS(fixed({0, 0, 0, 1, 1, 1}), "sum_order = \"any\"");
  EXPECT_EQ(why_not_two_level({0, 0, 0, 1, 1, 1}, SumOrder::any), "");
}

TEST(Levels, GroupsOfARank) {
  const LevelGroups groups = level_groups({"dp", 4, {10, 11, 12, 13, 14, 15}}, {0, 0, 1, 1, 2, 2});
  EXPECT_EQ(groups.inside.name, "dp/inside");
  EXPECT_EQ(groups.inside.rank, 0);
  EXPECT_EQ(groups.inside.ranks, (std::vector{14, 15}));
  EXPECT_EQ(groups.across.name, "dp/across");
  EXPECT_EQ(groups.across.rank, 2);
  EXPECT_EQ(groups.across.ranks, (std::vector{10, 12, 14}));
}

}  // namespace

}  // namespace zt::comm
