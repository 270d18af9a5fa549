// Tests which regions of a file are accepted, and regions as boxes.
#include "zt/reshard/region.h"

#include <algorithm>

#include "sdk/reshard/random_regions.h"
#include "support/exhaustive.h"
#include "support/message.h"
#include "zt/base/error.h"

namespace zt::test {
namespace {

constexpr int64_t kHuge = int64_t{1} << 40;

TEST(Region, ValidOnesAreAccepted) {
  EXPECT_EQ(validate_region({}, {{{}}, 0, 1}), "") << "one element";
  EXPECT_EQ(validate_region({}, {}), "") << "none";
  EXPECT_EQ(validate_region({4, 6}, {{{{0, 0}, {4, 2}}, {{1, 3}, {3, 6}}}, 7, 7}), "");
  EXPECT_EQ(validate_region({0, kHuge}, {{{{0, 0}, {0, kHuge}}}, 0, 0}), "");
  EXPECT_EQ(validate_region({kHuge, 1 << 20}, whole_region({kHuge, 1 << 20})), "");
}

TEST(Region, WhatIsWrongIsSaid) {
  EXPECT_EQ(validate_region({4}, {{{{0, 0}, {4, 2}}}, 0, 8}), "its box 0 has 2 to 2 dims, the tensor 1");
  EXPECT_EQ(validate_region({4}, {{{{0}, {4, 2}}}, 0, 4}), "its box 0 has 1 to 2 dims, the tensor 1");
  EXPECT_EQ(validate_region({4, 6}, {{{{0, 0}, {4, 2}}, {{1, 3}, {3, 7}}}, 0, 8}),
            "its box 1 is [3, 7) in dim 1, which is not in [0, 6)");
  EXPECT_EQ(validate_region({4}, {{{{-1}, {2}}}, 0, 1}), "its box 0 is [-1, 2) in dim 0, which is not in [0, 4)");
  EXPECT_EQ(validate_region({4}, {{{{3}, {2}}}, 0, 0}), "its box 0 is [3, 2) in dim 0, which is not in [0, 4)");
  EXPECT_EQ(validate_region({-4}, {}), "its tensor has the shape [-4]");
  EXPECT_EQ(validate_region({kHuge, kHuge}, {}), "its tensor has the shape [1099511627776, 1099511627776]");
  EXPECT_EQ(validate_region({0, kHuge, kHuge}, {}), "its tensor has the shape [0, 1099511627776, 1099511627776]");
}

TEST(Region, CountsStayInsideTheBoxes) {
  const std::vector<Box> boxes{{{0}, {3}}, {{4}, {5}}};
  EXPECT_EQ(validate_region({5}, {boxes, 4, 0}), "");
  EXPECT_EQ(validate_region({5}, {boxes, 1, 4}), "it has 4 elements from number 1 on, its boxes have 4");
  EXPECT_EQ(validate_region({5}, {boxes, 5, 0}), "it has 0 elements from number 5 on, its boxes have 4");
  EXPECT_EQ(validate_region({5}, {boxes, -1, 2}), "it has 2 elements from number -1 on, its boxes have 4");
  EXPECT_EQ(validate_region({5}, {boxes, 1, -1}), "it has -1 elements from number 1 on, its boxes have 4");
  EXPECT_NE(validate_region({5}, {boxes, 1, INT64_MAX}), "") << "first + count is beyond 64 bits";
  EXPECT_NE(validate_region({}, {{{}}, 0, 2}), "");
  const Box large{{0}, {INT64_MAX}};
  EXPECT_EQ(validate_region({INT64_MAX}, {{large, large}, 0, 1}), "its boxes have more elements than 64 bits count");
}

TEST(Region, NumelIsChecked) {
  EXPECT_EQ((Box{{}, {}}.numel()), 1);
  EXPECT_EQ((Box{{1, 2}, {3, 5}}.numel()), 6);
  EXPECT_EQ((Box{{0, 0, 7}, {kHuge, kHuge, 7}}.numel()), 0);
  EXPECT_SAYS("64 bits", whole_region({kHuge, kHuge}));
}

TEST(Region, RangeOfAMatrixIsThreeBoxes) {
  const std::vector<PlacedBox> boxes = region_boxes({{{{0, 0}, {1 << 20, 1 << 20}}}, (1 << 20) - 3, (5 << 20) + 4});
  ASSERT_EQ(boxes.size(), 3U);
  EXPECT_EQ(boxes[0].box, (Box{{0, (1 << 20) - 3}, {1, 1 << 20}}));
  EXPECT_EQ(boxes[1].box, (Box{{1, 0}, {6, 1 << 20}}));
  EXPECT_EQ(boxes[2].box, (Box{{6, 0}, {7, 1}}));
  EXPECT_EQ(boxes[2].place, (5 << 20) + 3);
}

TEST(Region, BoxesAreTheRegionInItsOrder) {
  for (int64_t seed = 0; seed < zt::test::number_of_cases(20000); ++seed) {
    Dice dice(seed);
    const std::vector<int64_t> shape = random_shape(dice);
    const Region region = random_part(dice, random_boxes(dice, shape));
    ASSERT_EQ(validate_region(shape, region), "") << "seed " << seed;
    std::vector<int64_t> elements;
    const std::vector<PlacedBox> boxes = region_boxes(region);
    for (const PlacedBox& placed : boxes) {
      ASSERT_EQ(placed.place, static_cast<int64_t>(elements.size())) << "seed " << seed;
      const std::vector<int64_t> more = elements_of(shape, {{placed.box}, 0, placed.box.numel()});
      ASSERT_FALSE(more.empty()) << "seed " << seed;
      elements.insert(elements.end(), more.begin(), more.end());
    }
    ASSERT_EQ(elements, elements_of(shape, region)) << "seed " << seed;
    ASSERT_LE(boxes.size(), region.boxes.size() + 2 * std::max<size_t>(shape.size(), 1) - 2) << "seed " << seed;
  }
}

TEST(Region, RestIsWhatIsNotTaken) {
  for (int64_t seed = 0; seed < zt::test::number_of_cases(20000); ++seed) {
    Dice dice(seed);
    const std::vector<int64_t> shape = random_shape(dice);
    const auto elements = [&](const std::vector<Box>& boxes) {
      std::vector<int64_t> all;
      for (const Box& box : boxes) {
        for (const int64_t element : elements_of(shape, {{box}, 0, box.numel()})) all.push_back(element);
      }
      std::sort(all.begin(), all.end());
      return all;
    };
    const std::vector<Box> boxes = random_boxes(dice, shape), taken = random_boxes(dice, shape);
    std::vector<int64_t> expected;
    const std::vector<int64_t> all = elements(boxes), gone = elements(taken);
    std::set_difference(all.begin(), all.end(), gone.begin(), gone.end(), std::back_inserter(expected));
    ASSERT_EQ(elements(rest_of(boxes, taken)), expected) << "seed " << seed;
  }
}

}  // namespace
}  // namespace zt::test
