// Compares attention in blocks of one sequence, merged, with attention to the whole sequence, in float64 and narrower.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <limits>

#include "attention/attention_cuda.h"
#include "attention/attention_tiled.h"
#include "context/block_merge.h"
#include "context/flash_block.h"
#include "support/fake_context.h"
#include "zt/base/rows.h"

namespace zt::nn {
namespace {

struct BlockCase {
  std::string name;
  bool causal = true;
  int64_t window = 0;
  bool packed = false, dropout = false;
  AttentionShape shape{4, 2, 6};
};

void PrintTo(const BlockCase& c, std::ostream* out) {
  *out << c.name;
}

constexpr int64_t kBatch = 2, kTokens = 83;
// Two ranks' chunks of unequal size, and one of its own.
const std::vector<std::vector<Share>> kParts{{{0, 21}, {62, 21}}, {{21, 20}, {41, 21}}};

AttentionRule rule_of(const BlockCase& c) {
  AttentionRule rule{.shape = c.shape, .sees = {c.causal, c.window}, .dropout = {}, .first_head = 3};
  if (c.dropout) rule.dropout.emplace(0.3, test::FakeContext(), 1);
  return rule;
}

at::Tensor segments_of(const BlockCase& c) {
  return c.packed ? at::arange(kTokens).floor_divide(11).repeat({kBatch, 1}) : at::Tensor();
}

at::Tensor part_of(const at::Tensor& x, const std::vector<Share>& ranges) {
  return x.defined() ? tokens_in(x, ranges).contiguous() : x;
}

struct Gradients {
  at::Tensor out, dqkv;
};

struct Kernel {
  decltype(&block_forward_by_aten) forward;
  decltype(&block_backward_by_aten) backward;
};
const Kernel kTiled{
    [](const at::Tensor& out, const at::Tensor& logsumexp, const AttentionViews& in, const AttentionTokens& tokens,
       const AttentionRule& rule) { attention_forward(out, logsumexp, in, tokens, rule); },
    [](const AttentionViews& grads, GradientSum sum, const at::Tensor& dout, const AttentionViews& in, const at::Tensor& out,
       const at::Tensor& logsumexp, const AttentionTokens& tokens,
       const AttentionRule& rule) { attention_backward(grads, sum, dout, in, out, logsumexp, tokens, rule); }};
const Kernel kAten{block_forward_by_aten, block_backward_by_aten};
const Kernel kFlash{
    [](const at::Tensor& out, const at::Tensor& logsumexp, const AttentionViews& in, const AttentionTokens& tokens,
       const AttentionRule& rule) { flash_block_forward(out, logsumexp, in, flash_parts_of(in, tokens, rule).value(), rule); },
    [](const AttentionViews& grads, GradientSum sum, const at::Tensor& dout, const AttentionViews& in, const at::Tensor& out,
       const at::Tensor& logsumexp, const AttentionTokens& tokens, const AttentionRule& rule) {
      flash_block_backward(grads, sum, dout, in, out, logsumexp, flash_parts_of(in, tokens, rule).value(), rule);
    }};
bool has_flash(const BlockCase& c) {
  return !c.packed && !c.dropout && c.window == 0;
}

BlockResult empty_result(const at::Tensor& qkv, const AttentionShape& shape, at::ScalarType dtype) {
  const auto wide = qkv.options().dtype(wide_dtype(qkv.scalar_type()));
  return {at::empty({kBatch, qkv.size(1), shape.heads * shape.head_dim}, qkv.options().dtype(dtype)),
          at::empty({kBatch, shape.heads, qkv.size(1)}, wide)};
}

Gradients in_one_piece(const BlockCase& c, const at::Tensor& qkv, const at::Tensor& dout) {
  const AttentionRule rule = rule_of(c);
  const AttentionTokens tokens = whole_tokens(kTokens, segments_of(c));
  const BlockResult result = empty_result(qkv, c.shape, qkv.scalar_type());
  const at::Tensor dqkv = at::empty_like(qkv);
  attention_forward(result.out, result.logsumexp, views_of(qkv, c.shape), tokens, rule);
  attention_backward(views_of(dqkv, c.shape), GradientSum::write, dout, views_of(qkv, c.shape), result.out, result.logsumexp,
                     tokens, rule);
  return {result.out, dqkv};
}

// Each part attends to one part after the other.
Gradients in_blocks(const BlockCase& c, const Kernel& kernel, const at::Tensor& qkv, const at::Tensor& dout) {
  const AttentionRule rule = rule_of(c);
  const auto wide = wide_dtype(qkv.scalar_type());
  const at::Tensor segments = segments_of(c), out = at::empty_like(dout),
                   dqkv = at::zeros(qkv.sizes(), qkv.options().dtype(wide));
  const auto give = [](const at::Tensor& whole, const at::Tensor& part, const std::vector<Share>& ranges) {
    int64_t first = 0;
    for (const Share& range : ranges) {
      whole.narrow(1, range.begin, range.count).add_(part.narrow(1, first, range.count));
      first += range.count;
    }
  };
  out.zero_();
  for (const auto& own : kParts) {
    const at::Tensor mine = part_of(qkv, own);
    const BlockResult sum = empty_result(mine, c.shape, wide);
    sum.out.zero_();
    sum.logsumexp.fill_(-std::numeric_limits<double>::infinity());
    const auto tokens_of = [&](const std::vector<Share>& other) {
      return AttentionTokens{PlaceRanges(own), PlaceRanges(other), kTokens, part_of(segments, own), part_of(segments, other)};
    };
    const auto views_with = [&](const at::Tensor& other) {
      return AttentionViews{views_of(mine, c.shape).queries, views_of(other, c.shape).keys, views_of(other, c.shape).values};
    };
    for (const auto& other : kParts) {
      const BlockResult block = empty_result(mine, c.shape, wide);
      const at::Tensor theirs = part_of(qkv, other);
      kernel.forward(block.out, block.logsumexp, views_with(theirs), tokens_of(other), rule);
      merge_block(sum, block);
    }
    const at::Tensor rounded = sum.out.to(qkv.scalar_type());
    give(out, rounded, own);
    const at::Tensor dmine = at::zeros(mine.sizes(), dqkv.options()), dpart = part_of(dout, own);
    for (const auto& other : kParts) {
      const at::Tensor theirs = part_of(qkv, other), dtheirs = at::zeros(theirs.sizes(), dqkv.options());
      const AttentionViews to{views_of(dmine, c.shape).queries, views_of(dtheirs, c.shape).keys,
                              views_of(dtheirs, c.shape).values};
      kernel.backward(to, GradientSum::add, dpart, views_with(theirs), rounded, sum.logsumexp, tokens_of(other), rule);
      give(dqkv, dtheirs, other);
    }
    give(dqkv, dmine, own);
  }
  return {out, dqkv};
}

class AttentionBlocks : public testing::TestWithParam<BlockCase> {};

// Sums of at most 83 terms of size about 1 in another order: errors of some 83 units, and the rounding of narrow results.
TEST_P(AttentionBlocks, AreTheWhole) {
  const BlockCase& c = GetParam();
  for (const auto& [dtype, unit] : {std::pair(at::kDouble, 0x1p-53), {at::kFloat, 0x1p-24}, {at::kBFloat16, 0x1p-8}}) {
    const at::Tensor qkv = at::randn({kBatch, kTokens, c.shape.columns()}, at::kDouble).to(dtype);
    const at::Tensor dout = at::randn({kBatch, kTokens, c.shape.heads * c.shape.head_dim}, at::kDouble).to(dtype);
    const Gradients wanted = in_one_piece(c, qkv, dout);
    const auto gap = [](const at::Tensor& a, const at::Tensor& b) {
      return ((a.to(at::kDouble) - b.to(at::kDouble)).abs().max() / b.to(at::kDouble).abs().max()).item<double>();
    };
    const double bound = dtype == at::kBFloat16 ? 2 * unit : 4 * kTokens * unit;
    const auto check = [&, &type = dtype](const Kernel& kernel, double at_most) {
      const Gradients got = in_blocks(c, kernel, qkv, dout);
      EXPECT_LE(gap(got.out, wanted.out), at_most) << type;
      EXPECT_LE(gap(got.dqkv, wanted.dqkv), at_most) << type;
    };
    check(kTiled, bound);
    check(kAten, bound);
    // The results of a query's parts, at most four, and the weights are rounded, too.
    if (has_flash(c)) check(kFlash, dtype == at::kBFloat16 ? 8 * unit : bound);
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
