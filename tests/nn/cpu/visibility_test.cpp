// Tests which keys a query sees: the rule, its mask, and the tiles that follow it.
#include "attention/visibility.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "cpu/tile.h"

namespace zt::nn {
namespace {

TEST(Visibility, IsOneRuleInAllForms) {
  constexpr int64_t kPlaces = 9;
  const PlaceRanges whole = PlaceRanges::whole(kPlaces), some({{1, 2}, {4, 3}, {8, 1}});
  for (const Visibility sees :
       {Visibility{true}, Visibility{false}, Visibility{true, 1}, Visibility{true, 3}, Visibility{true, 9}}) {
    for (const auto& [queries, keys] : {std::pair(whole, whole), {some, whole}, {whole, some}, {some, some}}) {
      const at::Tensor mask = sees.mask(queries, keys, at::kCPU);
      double pairs = 0;
      for (int64_t i = 0; i < queries.rows(); ++i) {
        const int64_t query = queries.place(i);
        const TileRange seen = sees.keys_of(query, query, keys, kPlaces);
        for (int64_t j = 0; j < keys.rows(); ++j) {
          const int64_t key = keys.place(j);
          const bool is_seen = sees.causal ? key <= query && (!sees.window || key > query - sees.window) : true;
          EXPECT_EQ(mask[i][j].item<bool>(), is_seen) << query << ", " << key;
          EXPECT_EQ(j >= seen.begin && j < seen.end, is_seen) << query << ", " << key;
          if (is_seen) pairs += sees.causal && key == query ? 0.5 : 1;
        }
      }
      EXPECT_EQ(sees.pairs(queries, keys, kPlaces), pairs);
    }
  }
  EXPECT_EQ(Visibility{true}.pairs(whole, whole, kPlaces), 0.5 * kPlaces * kPlaces);
}

TEST(Visibility, PlacesOfRows) {
  const PlaceRanges places({{1, 2}, {4, 3}});
  EXPECT_EQ(places.rows(), 5);
  for (const auto& [row, place] : {std::pair(0, 1), {1, 2}, {2, 4}, {4, 6}}) {
    EXPECT_EQ(places.place(row), place);
    EXPECT_EQ(places.rows_before(place), row);
  }
  EXPECT_EQ(places.rows_before(0), 0);
  EXPECT_EQ(places.rows_before(3), 2);
  EXPECT_EQ(places.rows_before(100), 5);
  EXPECT_EQ(PlaceRanges().rows(), 0);
}

// Each row of a tile has its own first key and end. A row may see no key of the tile. Of 20 terms with an error of a few 2^-53
// each, the sum is within 1e-13.
TEST(Visibility, OfTheRowsOfATile) {
  constexpr int64_t kKeys = 20, kRow = tile::padded(kKeys), kRows = 4;
  tile::AttentionMask mask{.keys = kKeys,
                           .first = {0, 3, 17, 5},
                           .end = {20, 18, 19, 5},
                           .query_segments = nullptr,
                           .key_segments = nullptr,
                           .keep = nullptr,
                           .keep_row = 0,
                           .keep_scale = 1};
  const at::Tensor given = at::randn({kRows, kRow}, at::kDouble);
  at::Tensor scores = given.clone(), grads = at::ones({kRows, kRow}, at::kDouble);
  double largest[kRows], sum[kRows], logsumexp[kRows], dots[kRows] = {};
  std::fill_n(largest, kRows, -INFINITY);
  std::fill_n(sum, kRows, 0.0);
  tile::softmax<double>(Isa::plain, scores.mutable_data_ptr<double>(), kRow, kRows, mask, {largest, sum, nullptr, 0});
  for (int64_t i = 0; i < kRows; ++i) logsumexp[i] = sum[i] > 0 ? largest[i] + std::log(sum[i]) : 0;
  at::Tensor again = given.clone();
  tile::softmax_backward<double>(Isa::plain, again.mutable_data_ptr<double>(), grads.mutable_data_ptr<double>(), kRow, kRows,
                                 mask, logsumexp, dots);
  for (int64_t i = 0; i < kRows; ++i) {
    double total = 0;
    for (int64_t j = mask.first[i]; j < mask.end[i]; ++j) total += std::exp(given[i][j].item<double>());
    for (int64_t j = 0; j < kRow; ++j) {
      const bool seen = j >= mask.first[i] && j < mask.end[i];
      const double expected = seen ? std::exp(given[i][j].item<double>()) / total : 0;
      EXPECT_NEAR(sum[i] > 0 ? scores[i][j].item<double>() / sum[i] : scores[i][j].item<double>(), expected, 1e-13);
      EXPECT_NEAR(again[i][j].item<double>(), expected, 1e-13) << i << ", " << j;
      EXPECT_NEAR(grads[i][j].item<double>(), expected, 1e-13) << i << ", " << j;
    }
  }
}

}  // namespace
}  // namespace zt::nn
