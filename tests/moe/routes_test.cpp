// Tests which experts tokens get, and which they lose for lack of room.
#include "routing/routes.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <limits>

#include "routing/router_options.h"
#include "zt/base/error.h"

namespace zt::test {
namespace {

using namespace moe;

at::Tensor longs(std::vector<int64_t> numbers, int64_t columns) {
  return at::tensor(numbers, at::kLong).view({-1, columns});
}

TEST(Selection, TakesTheLargestAndTheLowerIndexOfEqualOnes) {
  const at::Tensor scores = at::tensor({0.1, 0.4, 0.4, 0.3, 0.5, 0.5, 0.5, 0.5}, at::kDouble).view({2, 4});
  EXPECT_TRUE(select_top_k(scores, {2}).equal(longs({1, 2, 0, 1}, 2)));
}

TEST(Selection, OfNanIsAnExpertAllTheSame) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_TRUE(select_top_k(at::tensor({nan, 0.5, nan}, at::kDouble).view({1, 3}), {2}).equal(longs({1, 0}, 2)));
}

TEST(Selection, OfNanInGroupsAndCapacitiesIsInBounds) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const at::Tensor scores = at::tensor({nan, nan, 0.5, 0.25}, at::kDouble).view({1, 4});
  EXPECT_TRUE(select_top_k(scores, {2, 2, 1}).equal(longs({2, 3}, 2)));
  at::Tensor experts = longs({0, 0, 0, 0}, 1);
  const at::Tensor ranking = at::tensor({nan, 0.5, nan, 0.75}, at::kDouble).view({4, 1});
  EXPECT_EQ(drop_above(experts, {.rows = 2, .experts = 1, .ranking = ranking}), 2);
  EXPECT_TRUE(experts.equal(longs({-1, 0, -1, 0}, 1)));
}

// Groups are {0, 1}, {2, 3}, {4, 5}: the two best sums are those of the second and the third.
TEST(Selection, StaysInTheBestGroups) {
  const at::Tensor scores = at::tensor({0.9, 0.0, 0.5, 0.5, 0.6, 0.5}, at::kDouble).view({1, 6});
  EXPECT_TRUE(select_top_k(scores, {3, 3, 2}).equal(longs({4, 2, 3}, 3)));
  EXPECT_TRUE(select_top_k(scores, {3}).equal(longs({0, 4, 2}, 3)));
}

TEST(Selection, ExpertsChooseTokensOfEachSample) {
  const at::Tensor scores = at::tensor({0.1, 0.9, 0.2, 0.8, 0.3, 0.7, 0.4, 0.6}, at::kDouble).view({4, 2});
  EXPECT_TRUE(select_by_experts(scores, 2, 1).equal(longs({-1, 1, 0, -1, -1, 1, 0, -1}, 2)));
  EXPECT_TRUE(select_by_experts(scores, 1, 9).equal(longs({0, 1, 0, 1, 0, 1, 0, 1}, 2)));
}

TEST(Selection, BalancedRoutesTakeTurnsInEverySample) {
  EXPECT_TRUE(balanced_routes(2, {{0, 2}}, 2, 3).equal(longs({0, 1, 2, 0, 0, 1, 2, 0}, 2)));
}

TEST(Capacity, KeepsTheLargestWeightsOrTheFirstTokens) {
  const at::Tensor weights = at::tensor({0.1, 0.3, 0.2, 0.9}, at::kDouble).view({4, 1});
  at::Tensor by_weight = longs({0, 0, 0, 1}, 1), by_place = by_weight.clone();
  EXPECT_EQ(drop_above(by_weight, {.rows = 2, .experts = 2, .ranking = weights}), 1);
  EXPECT_TRUE(by_weight.equal(longs({-1, 0, 0, 1}, 1)));
  EXPECT_EQ(drop_above(by_place, {.rows = 2, .experts = 2}), 1);
  EXPECT_TRUE(by_place.equal(longs({0, 0, -1, 1}, 1)));
}

TEST(Capacity, IsOfEachSample) {
  at::Tensor experts = longs({0, 0, 0, 0}, 1);
  EXPECT_EQ(drop_above(experts, {.samples = 2, .rows = 1, .experts = 1}), 2);
  EXPECT_TRUE(experts.equal(longs({0, -1, 0, -1}, 1)));
}

// Three tokens with two routes each; both experts have room for two.
TEST(Capacity, TakesPlacesByTokenOrByChoice) {
  const at::Tensor experts = longs({0, 1, 1, 0, 0, 1}, 2);
  at::Tensor by_token = experts.clone(), by_choice = experts.clone();
  EXPECT_EQ(drop_above(by_token, {.rows = 2, .experts = 2}), 2);
  EXPECT_TRUE(by_token.equal(longs({0, 1, 1, 0, -1, -1}, 2)));
  EXPECT_EQ(drop_above(by_choice, {.rows = 2, .experts = 2, .is_by_choice = true}), 2);
  EXPECT_TRUE(by_choice.equal(longs({0, 1, 1, -1, 0, -1}, 2)));
}

// Tokens that do not count get the room that is left. Their dropped routes are not counted.
TEST(Capacity, GivesRoomToTokensThatCountFirst) {
  const at::Tensor counted = at::tensor({0, 1, 0, 1}, at::kLong).to(at::kBool);
  const at::Tensor weights = at::tensor({0.9, 0.1, 0.8, 0.2}, at::kDouble).view({4, 1});
  for (const at::Tensor& ranking : {at::Tensor(), weights}) {
    at::Tensor experts = longs({0, 0, 0, 0}, 1);
    EXPECT_EQ(drop_above(experts, {.rows = 3, .experts = 1, .ranking = ranking, .counted = counted}), 0);
    EXPECT_TRUE(experts.equal(longs({0, 0, -1, 0}, 1)));
    EXPECT_EQ(drop_above(experts, {.rows = 1, .experts = 1, .ranking = ranking, .counted = counted}), 1);
    EXPECT_TRUE(experts.equal(ranking.defined() ? longs({-1, -1, -1, 0}, 1) : longs({-1, 0, -1, -1}, 1)));
  }
}

TEST(Capacity, RoomIsAFactorOfBalancedRouting) {
  CapacityOptions capacity;
  capacity.train = 1.25;
  capacity.eval = 2;
  capacity.min = 3;
  EXPECT_EQ(capacity.rows(true, 100, 2, 8), 32);  // ceil(1.25 * 25)
  EXPECT_EQ(capacity.rows(false, 100, 2, 8), 50);
  EXPECT_EQ(capacity.rows(true, 8, 1, 8), 3);
  EXPECT_EQ(capacity.rows(true, 2, 1, 8), 2);  // never more than there are tokens
}

// In float64, 1.1 * 50 is above 55.
TEST(Capacity, IsRoundedUpFromFloat32) {
  CapacityOptions capacity;
  capacity.train = 1.1;
  EXPECT_EQ(capacity.rows(true, 100, 1, 2), 55);
  EXPECT_EQ(capacity.rows(true, 50, 1, 1), 50);
}

TEST(Load, CountsSlotsBySample) {
  const at::Tensor load = load_by_sample(longs({0, 1, 1, -1, 2, 2, 0, 2}, 2), 2, 3);
  EXPECT_TRUE(load.equal(at::tensor({1.0, 2.0, 0.0, 1.0, 0.0, 3.0}, at::kDouble).view({2, 3})));
  const at::Tensor counted = at::tensor({0, 1, 1, 0}, at::kLong).to(at::kBool);
  const at::Tensor of_some = load_by_sample(longs({0, 1, 1, -1, 2, 2, 0, 2}, 2), 2, 3, counted);
  EXPECT_TRUE(of_some.equal(at::tensor({0.0, 1.0, 0.0, 0.0, 0.0, 2.0}, at::kDouble).view({2, 3})));
}

TEST(RouterOptions, AreChecked) {
  const auto table = [](Value::Table more) {
    Value::Table options{{"hidden", 8}, {"experts", 4}};
    options.merge(more);
    return Value(options);
  };
  EXPECT_EQ(parse_router(table({})).top_k, 2);
  EXPECT_THROW(parse_router(table({{"top_k", 5}})), Misuse);
  EXPECT_THROW(parse_router(table({{"groups", 3}})), Misuse);
  EXPECT_THROW(parse_router(table({{"groups", 4}, {"top_groups", 1}})), Misuse);
  EXPECT_THROW(parse_router(table({{"score", "sigmoid"}, {"softmax_after", true}})), Misuse);
  EXPECT_THROW(parse_router(table({{"choice", "expert"}})), Misuse);
  EXPECT_THROW(parse_router(table({{"capacity", Value::Table{{"train", 0}}}})), Misuse);
  EXPECT_THROW(parse_router(table({{"losses", Value::Table{{"balance", 0.01}, {"per", "batch"}}}})), Misuse);
  EXPECT_THROW(parse_router(table({{"scores", "softmax"}})), Misuse);
}

}  // namespace
}  // namespace zt::test
