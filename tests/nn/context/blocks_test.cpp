// Compares attention in blocks of one sequence, merged, with attention to the whole sequence, in float64 and narrower.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <limits>

#include "block_cases.h"

namespace zt::nn {
namespace {

class AttentionBlocks : public testing::TestWithParam<BlockCase> {};

TEST_P(AttentionBlocks, AreTheWhole) {
  const BlockCase& c = GetParam();
  for (const auto dtype : {at::kDouble, at::kFloat, at::kBFloat16}) {
    expect_the_whole(c, kTiled, dtype);
    expect_the_whole(c, kAten, dtype);
    if (has_flash(c)) expect_the_whole(c, kFlash, dtype);
  }
}

INSTANTIATE_TEST_SUITE_P(Nn, AttentionBlocks,
                         testing::Values(BlockCase{"causal"}, BlockCase{"whole", false},
                                         BlockCase{"uneven_heads", true, 0, false, false, {3, 2, 8, 2, 1}},
                                         BlockCase{"window", true, 13}, BlockCase{"one_key", true, 1},
                                         BlockCase{"packed", true, 0, true}, BlockCase{"packed_whole", false, 0, true},
                                         BlockCase{"dropout", true, 0, false, true},
                                         BlockCase{"all", true, 7, true, true, {3, 1, 8}}),
                         [](const auto& info) { return info.param.name; });

TEST(AttentionBlock, OfHiddenKeysIsEmpty) {
  const BlockCase c;
  const AttentionTokens tokens{PlaceRanges({{0, 4}}), PlaceRanges({{4, 5}}), 9, {}, {}};
  const at::Tensor queries = at::randn({kBatch, 4, 24}), keys = at::full({kBatch, 5, 12}, NAN);
  for (const Kernel& kernel : {kTiled, kFlash}) {
    const BlockResult result{at::ones({kBatch, 4, 24}), at::ones({kBatch, 4, 4})};
    kernel.forward(result.out, result.logsumexp, {queries, keys, keys}, tokens, rule_of(c));
    EXPECT_TRUE(at::equal(result.out, at::zeros_like(result.out)));
    EXPECT_TRUE(at::equal(result.logsumexp, at::full_like(result.logsumexp, -std::numeric_limits<double>::infinity())));
    const AttentionViews grads{at::ones_like(queries), at::ones_like(keys), at::ones_like(keys)};
    kernel.backward(grads, GradientSum::add, at::ones_like(queries), {queries, keys, keys}, result.out, at::zeros({kBatch, 4, 4}),
                    tokens, rule_of(c));
    for (const at::Tensor& grad : {grads.queries, grads.keys, grads.values}) EXPECT_TRUE(at::equal(grad, at::ones_like(grad)));
  }
}

TEST(FlashParts, AreThoseThatQueriesSee) {
  const auto shown = [](std::vector<Share> queries, std::vector<Share> keys, bool causal) {
    const auto parts = flash_parts({PlaceRanges(std::move(queries)), PlaceRanges(std::move(keys)), 20, {}, {}}, {causal, 0});
    std::string text = parts ? "" : "none";
    for (const FlashPart& part : parts.value_or(std::vector<FlashPart>()))
      text += fmt::format("{}+{}:{}+{}{} ", part.queries.begin, part.queries.count, part.keys.begin, part.keys.count,
                          part.is_causal ? "c" : "");
    return text;
  };
  EXPECT_EQ(shown({{0, 4}, {16, 4}}, {{0, 4}, {16, 4}}, true), "0+4:0+4c 4+4:0+4 4+4:4+4c ");
  EXPECT_EQ(shown({{0, 4}, {16, 4}}, {{4, 12}}, true), "4+4:0+12 ");
  EXPECT_EQ(shown({{4, 4}}, {{0, 20}}, true), "0+4:0+4 0+4:4+4c ");
  EXPECT_EQ(shown({{4, 4}}, {{0, 20}}, false), "0+4:0+20 ");
  EXPECT_EQ(shown({{4, 4}}, {{10, 5}}, true), "");
  EXPECT_EQ(shown({{4, 4}}, {{6, 8}}, true), "none");  // some queries see some of their keys
}

TEST(MergeBlock, OfNothingChangesNothing) {
  const double hidden = -std::numeric_limits<double>::infinity();
  const BlockResult sum{at::tensor({1.5, 0.0}, at::kDouble).view({1, 2, 1}),
                        at::tensor({900.0, hidden}, at::kDouble).view({1, 1, 2})};
  const BlockResult before{sum.out.clone(), sum.logsumexp.clone()};
  merge_block(sum, {at::zeros({1, 2, 1}, at::kDouble), at::full({1, 1, 2}, hidden, at::kDouble)});
  EXPECT_TRUE(at::equal(sum.out, before.out));
  EXPECT_TRUE(at::equal(sum.logsumexp, before.logsumexp));
  merge_block(sum, {at::ones({1, 2, 1}, at::kDouble), at::full({1, 1, 2}, -800.0, at::kDouble)});
  EXPECT_TRUE(at::equal(sum.out, at::tensor({1.5, 1.0}, at::kDouble).view({1, 2, 1})));
  EXPECT_TRUE(at::equal(sum.logsumexp, at::tensor({900.0, -800.0}, at::kDouble).view({1, 1, 2})));
}

}  // namespace
}  // namespace zt::nn
