// Tests the order of rows, and the loops that move rows and sum them, against ATen.
#include "exchange/rows.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "exchange/traffic.h"
#include "zt/base/error.h"

namespace zt::test {
namespace {

using namespace moe;

at::Tensor experts_of(std::vector<int64_t> experts, int64_t routes) {
  return at::tensor(experts, at::kLong).view({-1, routes});
}

TEST(RowOrder, SortsByExpertThenToken) {
  const RowOrder order = order_rows(experts_of({2, 0, 0, -1, 2, 1}, 2), 4);
  EXPECT_EQ(order.counts, (std::vector<int64_t>{2, 1, 2, 0}));
  EXPECT_TRUE(order.pairs.equal(at::tensor({1, 2, 5, 0, 4}, at::kLong)));
  EXPECT_TRUE(order.places.equal(experts_of({3, 0, 1, -1, 4, 2}, 2)));
  const RowOrder again = order_of(order.places, order.counts);
  EXPECT_TRUE(again.pairs.equal(order.pairs));
}

TEST(RowOrder, PadsEachExpertToTheSameRows) {
  const RowOrder order = order_rows(experts_of({1, 1, 0}, 1), 3, 2);
  EXPECT_EQ(order.counts, (std::vector<int64_t>{2, 2, 2}));
  EXPECT_TRUE(order.pairs.equal(at::tensor({2, -1, 0, 1, -1, -1}, at::kLong)));
  EXPECT_THROW(order_rows(experts_of({1, 1, 1}, 1), 3, 2), Misuse);
}

TEST(RowOrder, RefusesUnknownExperts) {
  EXPECT_THROW(order_rows(experts_of({3}, 1), 3), Misuse);
  EXPECT_THROW(order_rows(experts_of({-2}, 1), 3), Misuse);
}

TEST(RowOrder, NoTokensAreNoRows) {
  const RowOrder order = order_rows(at::empty({0, 2}, at::kLong), 3);
  EXPECT_EQ(order.rows(), 0);
  EXPECT_EQ(order.counts, (std::vector<int64_t>{0, 0, 0}));
}

TEST(Blocks, AreSwappedAndSwappedBack) {
  const std::vector<int64_t> sizes{2, 0, 3, 1, 4, 0};  // 2 x 3 blocks
  const at::Tensor rows = at::arange(20, at::kFloat).view({10, 2}), swapped = at::empty_like(rows), back = at::empty_like(rows);
  swap_block_order(swapped, rows, sizes, 3);
  const std::vector<at::Tensor> wanted{rows.narrow(0, 0, 2), rows.narrow(0, 5, 1), rows.narrow(0, 6, 4), rows.narrow(0, 2, 3)};
  EXPECT_TRUE(swapped.equal(at::cat(wanted)));
  swap_block_order(back, swapped, swapped_sizes(sizes, 3), 2);
  EXPECT_TRUE(back.equal(rows));
}

TEST(Traffic, CountsByRankAndByExpert) {
  const RowTraffic traffic{{1, 2, 3, 4}, {5, 6, 7, 8}, 2};
  EXPECT_EQ(traffic.sent_splits(), (std::vector<int64_t>{3, 7}));
  EXPECT_EQ(traffic.received_splits(), (std::vector<int64_t>{11, 15}));
  EXPECT_EQ(traffic.rows_of_experts(), (std::vector<int64_t>{12, 14}));
  EXPECT_EQ(RowTraffic::from_tensor(traffic.tensor(), 2).received, traffic.received);
}

class Rows : public testing::TestWithParam<at::ScalarType> {};

TEST_P(Rows, MoveAndSumLikeAten) {
  constexpr int64_t kTokens = 23, kRoutes = 3, kExperts = 5, kWidth = 300;
  const auto dtype = GetParam();
  const at::Tensor experts = at::randint(-1, kExperts, {kTokens, kRoutes}, at::kLong);
  const RowOrder order = order_rows(experts, kExperts);
  const at::Tensor tokens = at::randn({kTokens, kWidth}).to(dtype), more = at::randn({kTokens, kWidth}).to(dtype);
  const at::Tensor weights = at::rand({kTokens, kRoutes}, dtype == at::kDouble ? at::kDouble : at::kFloat);

  const at::Tensor rows = rows_of_tokens(tokens, order);
  EXPECT_TRUE(rows.equal(tokens.index_select(0, order.pairs.div(kRoutes, "floor"))));
  const SumGradients gradients = sum_rows_backward(tokens, rows, order, weights);
  const at::Tensor factors = weights.flatten().index_select(0, order.pairs).unsqueeze(1);
  EXPECT_TRUE(gradients.rows.equal(rows.to(factors.scalar_type()).mul(factors).to(dtype)));

  const at::Tensor sums = at::empty_like(tokens), mask = experts.ge(0).to(at::kDouble);
  sum_rows(sums, rows, order, weights, more);
  const at::Tensor exact = more.to(at::kDouble) + tokens.to(at::kDouble) * (weights.to(at::kDouble) * mask).sum(1, true);
  const double bound = dtype == at::kDouble ? 1e-14 : dtype == at::kFloat ? 1e-6 : dtype == at::kHalf ? 2e-3 : 2e-2;
  EXPECT_LT((sums.to(at::kDouble) - exact).abs().max().item<double>(), bound * exact.abs().max().item<double>());

  const at::Tensor products = sum_rows_backward(more, rows, order, weights).weights;
  const at::Tensor wanted = (more.to(at::kDouble) * tokens.to(at::kDouble)).sum(1, true) * mask;
  EXPECT_LT((products.to(at::kDouble) - wanted).abs().max().item<double>(), dtype == at::kDouble ? 1e-12 : 1e-3);
}

// A route without a row adds nothing.
TEST_P(Rows, EmptyRoutesChangeNoBit) {
  constexpr int64_t kTokens = 9, kWidth = 1031;
  const at::Tensor tokens = at::randn({kTokens, kWidth}).to(GetParam());
  for (const int64_t routes : {1, 2}) {
    const at::Tensor experts = at::randint(0, 4, {kTokens, routes}, at::kLong), weights = at::randn({kTokens, routes});
    const at::Tensor padded = at::cat({experts, at::full({kTokens, 1}, -1, at::kLong)}, 1);
    const RowOrder order = order_rows(experts, 4), wide = order_rows(padded, 4);
    const at::Tensor rows = rows_of_tokens(tokens, order), sums = at::empty_like(tokens), wide_sums = at::empty_like(tokens);
    sum_rows(sums, rows, order, weights);
    sum_rows(wide_sums, rows, wide, at::cat({weights, at::ones({kTokens, 1})}, 1));
    EXPECT_TRUE(sums.equal(wide_sums));
  }
}

// Results that are larger than the caches are stored past them.
TEST(LargeRows, HaveTheBitsOfTheirHalves) {
  constexpr int64_t kTokens = 3500, kWidth = 1920;  // 26 MB
  const at::Tensor tokens = at::randn({kTokens, kWidth});
  for (const int64_t routes : {1, 2}) {
    const at::Tensor experts = at::randint(0, 4, {kTokens, routes}, at::kLong), weights = at::randn({kTokens, routes});
    const RowOrder order = order_rows(experts, 4);
    const at::Tensor rows = rows_of_tokens(tokens, order), sums = at::empty_like(tokens);
    EXPECT_TRUE(rows.equal(tokens.index_select(0, order.pairs.div(routes, "floor"))));
    sum_rows(sums, rows, order, weights);
    const at::Tensor of_rows = sum_rows_backward(tokens, rows, order, weights).rows;
    EXPECT_TRUE(of_rows.equal(rows.mul(weights.flatten().index_select(0, order.pairs).unsqueeze(1))));
    for (const int64_t begin : {int64_t{0}, kTokens / 2}) {
      const auto half = [&](const at::Tensor& x) { return x.narrow(0, begin, kTokens / 2); };
      const RowOrder of_half = order_rows(half(experts), 4);
      const at::Tensor half_sums = at::empty_like(half(tokens));
      sum_rows(half_sums, rows_of_tokens(half(tokens), of_half), of_half, half(weights));
      EXPECT_TRUE(half(sums).equal(half_sums));
    }
  }
}

TEST_P(Rows, OfNoTokensAreEmpty) {
  const RowOrder order = order_rows(at::empty({0, 2}, at::kLong), 3);
  const at::Tensor tokens = at::empty({0, 7}, GetParam()), sums = at::empty({0, 7}, GetParam());
  EXPECT_EQ(rows_of_tokens(tokens, order).sizes(), (at::IntArrayRef{0, 7}));
  sum_rows(sums, tokens, order);
  EXPECT_EQ(sum_rows_backward(tokens, tokens, order, at::empty({0, 2})).weights.sizes(), (at::IntArrayRef{0, 2}));
}

TEST(RowsOfPadding, AreZero) {
  const RowOrder order = order_rows(experts_of({1, 0}, 1), 2, 2);
  const at::Tensor tokens = at::ones({2, 3});
  const at::Tensor rows = rows_of_tokens(tokens, order);
  EXPECT_TRUE(rows.sum(1).equal(at::tensor({3.0F, 0.0F, 3.0F, 0.0F})));
  const SumGradients gradients = sum_rows_backward(tokens, rows, order, at::full({2, 1}, 2.0F));
  EXPECT_TRUE(gradients.rows.sum(1).equal(at::tensor({6.0F, 0.0F, 6.0F, 0.0F})));
}

INSTANTIATE_TEST_SUITE_P(Dtypes, Rows, testing::Values(at::kDouble, at::kFloat, at::kBFloat16, at::kHalf),
                         [](const auto& info) { return std::string(at::toString(info.param)); });

}  // namespace
}  // namespace zt::test
