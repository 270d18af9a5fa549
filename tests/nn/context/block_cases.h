// Attention in blocks of one sequence, merged, and to the whole sequence, for tests on the CPU and on a GPU.
#pragma once

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <vector>

#include "attention/attention_cuda.h"
#include "attention/attention_tiled.h"
#include "context/block_merge.h"
#include "context/flash_block.h"
#include "nn/cpu/narrow.h"
#include "support/fake_context.h"
#include "zt/base/rows.h"

namespace zt::nn {

struct BlockCase {
  std::string name;
  bool causal = true;
  int64_t window = 0;
  bool packed = false, dropout = false;
  AttentionShape shape{4, 2, 6};
};

inline void PrintTo(const BlockCase& c, std::ostream* out) {
  *out << c.name;
}

constexpr int64_t kBatch = 2, kTokens = 83;
// Two ranks' chunks of unequal size, and one of its own.
inline const std::vector<std::vector<Share>> kParts{{{0, 21}, {62, 21}}, {{21, 20}, {41, 21}}};

inline AttentionRule rule_of(const BlockCase& c) {
  AttentionRule rule{.shape = c.shape, .sees = {c.causal, c.window}, .dropout = {}, .first_head = 3};
  if (c.dropout) rule.dropout.emplace(0.3, test::FakeContext(), 1);
  return rule;
}

inline at::Tensor segments_of(const BlockCase& c) {
  return c.packed ? at::arange(kTokens).floor_divide(11).repeat({kBatch, 1}) : at::Tensor();
}

inline at::Tensor part_of(const at::Tensor& x, const std::vector<Share>& ranges) {
  return x.defined() ? tokens_in(x, ranges).contiguous() : x;
}

struct Gradients {
  at::Tensor out, dqkv;
};

struct Kernel {
  decltype(&block_forward_by_aten) forward;
  decltype(&block_backward_by_aten) backward;
  bool rounds_more = false;  // than its results, in 16 bits
};
inline const Kernel kTiled{
    [](const at::Tensor& out, const at::Tensor& logsumexp, const AttentionViews& in, const AttentionTokens& tokens,
       const AttentionRule& rule) { attention_forward(out, logsumexp, in, tokens, rule); },
    [](const AttentionViews& grads, GradientSum sum, const at::Tensor& dout, const AttentionViews& in, const at::Tensor& out,
       const at::Tensor& logsumexp, const AttentionTokens& tokens,
       const AttentionRule& rule) { attention_backward(grads, sum, dout, in, out, logsumexp, tokens, rule); }};
inline const Kernel kAten{block_forward_by_aten, block_backward_by_aten};
inline const Kernel kFlash{
    [](const at::Tensor& out, const at::Tensor& logsumexp, const AttentionViews& in, const AttentionTokens& tokens,
       const AttentionRule& rule) { flash_block_forward(out, logsumexp, in, flash_parts_of(in, tokens, rule).value(), rule); },
    [](const AttentionViews& grads, GradientSum sum, const at::Tensor& dout, const AttentionViews& in, const at::Tensor& out,
       const at::Tensor& logsumexp, const AttentionTokens& tokens, const AttentionRule& rule) {
      flash_block_backward(grads, sum, dout, in, out, logsumexp, flash_parts_of(in, tokens, rule).value(), rule);
    },
    true};
inline bool has_flash(const BlockCase& c) {
  return !c.packed && !c.dropout && c.window == 0;
}

inline BlockResult empty_result(const at::Tensor& qkv, const AttentionShape& shape, at::ScalarType dtype) {
  const auto wide = qkv.options().dtype(wide_dtype(qkv.scalar_type()));
  return {at::empty({kBatch, qkv.size(1), shape.heads * shape.head_dim}, qkv.options().dtype(dtype)),
          at::empty({kBatch, shape.heads, qkv.size(1)}, wide)};
}

inline Gradients in_one_piece(const BlockCase& c, const at::Tensor& qkv, const at::Tensor& dout) {
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
inline Gradients in_blocks(const BlockCase& c, const Kernel& kernel, const at::Tensor& qkv, const at::Tensor& dout) {
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

// Returns the distance of both results from the exact ones, as multiples of their norms.
inline std::pair<double, double> distances(const Gradients& got, const Gradients& exact) {
  return {test::distance(got.out.to(at::kCPU, at::kDouble), exact.out),
          test::distance(got.dqkv.to(at::kCPU, at::kDouble), exact.dqkv)};
}

// Compares the blocks in `dtype` on a device with the whole in float64 on the CPU. In float32 and float64 sums of at most 83
// terms of size about 1 have errors of some 83 units. In 16 bits out is rounded, which the backward reads: the distance may
// be 2.5 times that of the whole in `dtype`. The kernels of flash attention round the weights and the results of a query's parts,
// too, at most four: some 8 units.
inline void expect_the_whole(const BlockCase& c, const Kernel& kernel, at::ScalarType dtype, at::Device device = at::kCPU) {
  const auto made = [&](uint64_t seed, int64_t columns) {
    return at::randn({kBatch, kTokens, columns}, at::make_generator<at::CPUGeneratorImpl>(seed), at::kDouble).to(dtype);
  };
  const at::Tensor qkv = made(1, c.shape.columns()), dout = made(2, c.shape.heads * c.shape.head_dim);
  const Gradients exact = in_one_piece(c, qkv.to(at::kDouble), dout.to(at::kDouble));
  const auto [out, dqkv] = distances(in_blocks(c, kernel, qkv.to(device), dout.to(device)), exact);
  const double unit = dtype == at::kDouble ? 0x1p-53 : test::unit_of(dtype);
  auto most = std::pair(4 * kTokens * unit, 4 * kTokens * unit);
  if (c10::elementSize(dtype) == 2) {
    const auto [one_out, one_dqkv] = distances(in_one_piece(c, qkv, dout), exact);
    most = kernel.rounds_more ? std::pair(8 * unit, 8 * unit) : std::pair(2.5 * one_out, 2.5 * one_dqkv);
  }
  EXPECT_LE(out, most.first) << dtype;
  EXPECT_LE(dqkv, most.second) << dtype;
}

}  // namespace zt::nn
