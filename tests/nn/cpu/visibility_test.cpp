// Tests which keys a query sees: the rule, its mask, and the tiles that follow it.
#include "attention/visibility.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "cpu/tile.h"

namespace zt::nn {
namespace {

TEST(Visibility, IsOneRuleInAllForms) {
  constexpr int64_t kPlaces = 9;
  for (const bool causal : {true, false}) {
    const Visibility sees{.causal = causal};
    const at::Tensor mask = sees.mask(kPlaces, at::kCPU);
    for (int64_t i = 0; i < kPlaces; ++i) {
      for (int64_t j = 0; j < kPlaces; ++j) {
        EXPECT_EQ(mask[i][j].item<bool>(), j >= sees.first_key(i) && j < sees.end_key(i, kPlaces)) << i << ", " << j;
      }
    }
    const TileRange keys = sees.keys_of({2, 5}, kPlaces);
    EXPECT_EQ(keys.begin, 0);
    EXPECT_EQ(keys.end, causal ? 5 : kPlaces);
    EXPECT_EQ(sees.share(), causal ? 0.5 : 1);
  }
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
