// Compares tiled attention with the plain formula in float64.
#include "attention/attention_tiled.h"

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <cmath>
#include <limits>

#include "support/fake_context.h"
#include "zt/base/error.h"
#include "zt/plan/allocation.h"

namespace zt::nn {
namespace {

struct TiledCase {
  int64_t samples = 2, places = 5;
  AttentionShape shape{2, 2, 8};
  bool causal = true, segments = false, dropout = false;
  int64_t window = 0;
};

struct Outcome {
  at::Tensor qkv, dout, out, dqkv;  // the inputs qkv and dout (as float64), and the results
};

at::Tensor random_values(at::IntArrayRef shape, at::ScalarType dtype) {
  return at::randn(shape, at::kDouble).to(dtype);
}

AttentionInputs inputs_of(const TiledCase& c) {
  AttentionInputs inputs;
  inputs.shape = c.shape;
  inputs.sees = {c.causal, c.window};
  // Documents of 7 or more tokens, whose segment numbers do not ascend.
  if (c.segments)
    inputs.segments = at::arange(c.places).floor_divide(7 + c.places / 5).mul(5).remainder(7).repeat({c.samples, 1});
  if (c.dropout) {
    test::FakeContext context;
    context.sample = 5;
    inputs.dropout.emplace(0.3, context, 1);
  }
  return inputs;
}

double keep_scale(const AttentionInputs& inputs) {
  return inputs.dropout ? inputs.dropout->scale() : 1;
}

Outcome run_core(const TiledCase& c, const AttentionInputs& inputs, at::ScalarType dtype) {
  const at::Tensor dout = random_values({c.samples, c.places, c.shape.heads * c.shape.head_dim}, dtype);
  const at::Tensor qkv = random_values({c.samples, c.places, c.shape.columns()}, dtype).set_requires_grad(true);
  const at::Tensor out = attention_core(qkv, inputs);
  const at::Tensor dqkv = torch::autograd::grad({out}, {qkv}, {dout})[0];
  return {qkv.detach().to(at::kDouble), dout.to(at::kDouble), out.detach(), dqkv};
}

// The results by the plain formula, and the numbers that bound the difference.
struct Reference {
  at::Tensor out, dqkv;
  double query, key, value, grad;  // the largest norms of a head's vector for one token
  double looks;                    // the largest sum of a key's weights over all queries that use it
};

double longest(const at::Tensor& x_BTHD) {
  return x_BTHD.norm(2, {-1}).max().item<double>();
}

Reference reference(const TiledCase& c, const AttentionInputs& inputs, const Outcome& run) {
  const auto [H, K, D] = std::tuple(c.shape.heads, c.shape.kv_heads, c.shape.head_dim);
  const at::Tensor qkv = run.qkv.clone().set_requires_grad(true);
  const auto heads = qkv.view({c.samples, c.places, H + 2 * K, D}).split_with_sizes({H, K, K}, 2);
  const auto shared = [&](const at::Tensor& x) { return x.repeat_interleave(H / K, 2).transpose(1, 2); };
  at::Tensor scores = heads[0].transpose(1, 2).matmul(shared(heads[1]).transpose(2, 3)) / std::sqrt(static_cast<double>(D));
  at::Tensor hidden = at::zeros({1, 1, c.places, c.places}, at::kBool);
  if (c.causal) hidden = at::ones({1, 1, c.places, c.places}, at::kBool).triu(1);
  if (c.window) hidden = hidden.logical_or(at::ones({c.places, c.places}, at::kBool).tril(-c.window));
  if (c.segments) hidden = hidden.logical_or(inputs.segments.unsqueeze(2).ne(inputs.segments.unsqueeze(1)).unsqueeze(1));
  const at::Tensor weights = scores.masked_fill(hidden, -std::numeric_limits<double>::infinity()).softmax(-1);
  const at::Tensor dropped = c.dropout ? weights * inputs.dropout->mask(weights.sizes()) * keep_scale(inputs) : weights;
  const at::Tensor out = dropped.matmul(shared(heads[2])).transpose(1, 2).reshape(run.dout.sizes());
  const at::Tensor looks = weights.sum(2).view({c.samples, K, H / K, c.places}).sum(2).max();
  return {out.detach(),      torch::autograd::grad({out}, {qkv}, {run.dout})[0],  longest(heads[0]),   longest(heads[1]),
          longest(heads[2]), longest(run.dout.view({c.samples, c.places, H, D})), looks.item<double>()};
}

// The unit roundoff of the stored dtype (`unit`) and of the arithmetic (`wide`).
struct Units {
  double unit, wide;
};
Units units_of(at::ScalarType dtype) {
  if (dtype == at::kDouble) return {0x1p-53, 0x1p-53};
  return {dtype == at::kFloat ? 0x1p-24 : dtype == at::kHalf ? 0x1p-11 : 0x1p-8, 0x1p-24};
}

double gap(const at::Tensor& got, const at::Tensor& expected) {
  return (got.to(at::kDouble) - expected).abs().max().item<double>();
}

// The error of a sum of n products is at most n units of the sum of their absolute values (Higham 2002, 3.1). The error of a
// score, with the scaling and the subtraction of the logsumexp, is (D + 6) units of |q| |k| / sqrt(D). The relative error of a
// weight is twice the error of a score (its own and that of the logsumexp), plus 8 units for exp and T + 8 for the sum. Results
// are sums of values with weights that add up to 1 in a row and to `looks` in a column. Stored results are rounded once more, and
// the backward reads the stored result.
void expect_close(const TiledCase& c, at::ScalarType dtype) {
  SCOPED_TRACE(testing::Message() << c10::toString(dtype) << " B " << c.samples << " T " << c.places << " H " << c.shape.heads
                                  << " K " << c.shape.kv_heads << " D " << c.shape.head_dim << " causal " << c.causal
                                  << " segments " << c.segments << " dropout " << c.dropout << " window " << c.window);
  const AttentionInputs inputs = inputs_of(c);
  const Outcome got = run_core(c, inputs, dtype);
  const Reference ref = reference(c, inputs, got);
  const auto [unit, wide] = units_of(dtype);
  const auto [H, K, D, T] =
      std::tuple(c.shape.heads, c.shape.kv_heads, static_cast<double>(c.shape.head_dim), static_cast<double>(c.places));
  const double scale = 1 / std::sqrt(D), value = ref.value * keep_scale(inputs);
  const double weight = 2 * (D + 6) * wide * ref.query * ref.key * scale + (T + 16) * wide;
  const double out = 2 * weight + T * wide + unit;  // relative to the values
  EXPECT_LE(gap(got.out, ref.out), out * value);
  ASSERT_EQ(got.out.scalar_type(), dtype);

  const double product = ref.grad * value;  // bounds the gradient of a weight and the mean of these gradients
  const double score = (weight * 2 + out + (2 * D + 4) * wide) * product;  // relative to the weight
  const double sum = static_cast<double>(H / K) * T * wide + unit;
  const auto parts = got.dqkv.split({H * c.shape.head_dim, K * c.shape.head_dim, K * c.shape.head_dim}, 2);
  const auto wanted = ref.dqkv.split({H * c.shape.head_dim, K * c.shape.head_dim, K * c.shape.head_dim}, 2);
  EXPECT_LE(gap(parts[0], wanted[0]), scale * ref.key * (score + 2 * sum * product));
  EXPECT_LE(gap(parts[1], wanted[1]), scale * ref.query * ref.looks * (score + 2 * sum * product));
  EXPECT_LE(gap(parts[2], wanted[2]), ref.grad * keep_scale(inputs) * ref.looks * (weight + sum));
}

constexpr auto kDtypes = {at::kDouble, at::kFloat, at::kBFloat16, at::kHalf};

TEST(AttentionTiled, AllLengths) {
  for (const auto dtype : kDtypes) {
    for (const int64_t places : {1, 3, 16, 17, 32, 63, 64, 65, 130}) {
      for (const bool causal : {true, false}) expect_close({.places = places, .causal = causal}, dtype);
    }
  }
}

TEST(AttentionTiled, AllHeadSizesAndGroups) {
  for (const auto dtype : kDtypes) {
    for (const int64_t head_dim : {1, 8, 20, 64, 128}) {
      expect_close({.places = 37, .shape = {4, 4, head_dim}}, dtype);
      expect_close({.places = 37, .shape = {6, 2, head_dim}}, dtype);
      expect_close({.places = 37, .shape = {3, 1, head_dim}, .causal = false}, dtype);
    }
  }
}

TEST(AttentionTiled, SegmentsAndDropout) {
  for (const auto dtype : kDtypes) {
    for (const bool causal : {true, false}) {
      expect_close({.places = 70, .causal = causal, .segments = true}, dtype);
      expect_close({.places = 70, .shape = {4, 2, 20}, .causal = causal, .dropout = true}, dtype);
      expect_close({.places = 33, .causal = causal, .segments = true, .dropout = true}, dtype);
    }
  }
}

TEST(AttentionTiled, Windows) {
  for (const auto dtype : kDtypes) {
    for (const int64_t window : {1, 2, 31, 32, 40, 70, 100}) {
      expect_close({.places = 70, .window = window}, dtype);
      expect_close({.places = 70, .shape = {4, 2, 20}, .segments = true, .dropout = true, .window = window}, dtype);
    }
  }
  expect_close({.samples = 1, .places = 1100, .shape = {1, 1, 8}, .window = 600}, at::kFloat);
}

// There are more keys than in a tile. With segments, some rows see no key of the first tile.
TEST(AttentionTiled, SeveralTilesOfKeys) {
  for (const auto dtype : {at::kDouble, at::kFloat}) {
    for (const bool causal : {true, false}) {
      expect_close({.samples = 1, .places = 1100, .shape = {1, 1, 8}, .causal = causal}, dtype);
      expect_close({.samples = 1, .places = 1100, .shape = {1, 1, 8}, .causal = causal, .segments = true, .dropout = true},
                   dtype);
    }
  }
}

// One segment lies at both ends, another one between. So for some rows, tiles without visible keys lie between tiles with visible
// keys.
TEST(AttentionTiled, ASegmentInTwoParts) {
  const TiledCase c{.samples = 1, .places = 1200, .shape = {1, 1, 8}, .causal = false};
  AttentionInputs inputs = inputs_of(c);
  inputs.segments = at::zeros({1, c.places}, at::kLong);
  inputs.segments.narrow(1, 20, 1150).fill_(1);
  TiledCase with = c;
  with.segments = true;
  const Outcome got = run_core(c, inputs, at::kDouble);
  const Reference ref = reference(with, inputs, got);
  // The bound of expect_close with T = 1200 and norms below 8: 2 (14 * 64 / sqrt(8) + 1216) + 1200 units of 8.
  EXPECT_LE(gap(got.out, ref.out), 4600 * 8 * 0x1p-53);
}

std::vector<at::Tensor> raw(const at::Tensor& qkv, const at::Tensor& dout, const AttentionInputs& inputs, Isa isa) {
  const at::Tensor out = at::empty_like(dout), dqkv = at::empty_like(qkv);
  const auto wide = qkv.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  const at::Tensor logsumexp = at::empty({qkv.size(0), inputs.shape.heads, qkv.size(1)}, wide);
  const AttentionTokens tokens = whole_tokens(qkv.size(1), inputs.segments);
  const AttentionViews in = views_of(qkv, inputs.shape);
  attention_forward(out, logsumexp, in, tokens, inputs, isa);
  attention_backward(views_of(dqkv, inputs.shape), GradientSum::write, dout, in, out, logsumexp, tokens, inputs, isa);
  return {out, logsumexp, dqkv};
}

TEST(AttentionTiled, ThreadsAndInstructionSetsDoNotMatter) {
  const int threads = at::get_num_threads();
  // The threads' shares begin at a new pair (sample, key head), at a new head of a group, or within a head.
  for (const TiledCase& c : {TiledCase{.samples = 3, .places = 77, .shape = {4, 2, 20}, .segments = true},
                             TiledCase{.samples = 1, .places = 600, .shape = {1, 1, 20}, .dropout = true},
                             TiledCase{.samples = 2, .places = 97, .shape = {3, 1, 4}, .causal = false, .dropout = true},
                             TiledCase{.samples = 1, .places = 1, .shape = {2, 1, 4}}}) {
    const AttentionInputs inputs = inputs_of(c);
    for (const auto dtype : kDtypes) {
      const at::Tensor qkv = random_values({c.samples, c.places, c.shape.columns()}, dtype);
      const at::Tensor dout = random_values({c.samples, c.places, c.shape.heads * c.shape.head_dim}, dtype);
      at::set_num_threads(1);
      const auto expected = raw(qkv, dout, inputs, Isa::plain);
      for (const int count : {1, 2, 3, 5}) {
        at::set_num_threads(count);
        for (const Isa isa : supported_isas()) {
          const auto got = raw(qkv, dout, inputs, isa);
          for (size_t i = 0; i < got.size(); ++i) {
            EXPECT_TRUE(at::equal(got[i], expected[i])) << isa_name(isa) << ", " << count << " threads, result " << i;
          }
        }
      }
    }
  }
  at::set_num_threads(threads);
}

// Also with dropout, no [T, T] tensor is held: only some [T, D] tensors and a tile of scores in float32.
TEST(AttentionTiled, DropoutHoldsNoMask) {
  const TiledCase c{.samples = 1, .places = 4096, .shape = {1, 1, 16}, .dropout = true};
  AllocationWatch watch;
  {
    const AllocationWatch::Scope scope(watch);
    run_core(c, inputs_of(c), at::kFloat);
  }
  EXPECT_GT(watch.peak_bytes(), c.places * c.shape.head_dim * 4);
  EXPECT_LT(watch.peak_bytes(), c.places * c.places / 2);
}

TEST(AttentionTiled, NanStaysInItsRow) {
  const TiledCase c{.samples = 1, .places = 40, .shape = {1, 1, 8}};
  const AttentionInputs inputs = inputs_of(c);
  at::Tensor qkv = random_values({1, 40, 24}, at::kFloat);
  const at::Tensor dout = random_values({1, 40, 8}, at::kFloat);
  const auto clean = raw(qkv, dout, inputs, best_isa());
  qkv.select(1, 21).narrow(1, 3, 1).fill_(std::numeric_limits<double>::quiet_NaN());
  const auto got = raw(qkv, dout, inputs, best_isa());
  const auto dquery = [](const std::vector<at::Tensor>& results) { return results[2].narrow(2, 0, 8); };
  for (int64_t place = 0; place < 40; ++place) {
    const at::Tensor row = got[0].select(1, place), drow = dquery(got).select(1, place);
    EXPECT_EQ(row.isnan().all().item<bool>(), place == 21) << place;
    EXPECT_EQ(drow.isnan().all().item<bool>(), place == 21) << place;
    if (place == 21) continue;
    EXPECT_TRUE(at::equal(row, clean[0].select(1, place))) << place;
    EXPECT_TRUE(at::equal(drow, dquery(clean).select(1, place))) << place;
  }
}

// A key of minus infinity, which 16-bit matmuls may give, has the weight 0.
TEST(AttentionTiled, AScoreOfMinusInfinityIsAMask) {
  const TiledCase c{.samples = 1, .places = 3, .shape = {1, 1, 1}, .causal = false};
  const at::Tensor qkv = at::ones({1, 3, 3}, at::kFloat), dout = at::ones({1, 3, 1}, at::kFloat);
  qkv[0][1][1].fill_(-std::numeric_limits<double>::infinity());
  qkv[0][1][2].fill_(5);
  EXPECT_TRUE(at::equal(raw(qkv, dout, inputs_of(c), best_isa())[0], at::ones({1, 3, 1}, at::kFloat)));
}

TEST(AttentionTiled, EmptyInputs) {
  const TiledCase c;
  for (const auto sizes : {std::array<int64_t, 3>{0, 4, c.shape.columns()}, {2, 0, c.shape.columns()}}) {
    EXPECT_EQ(attention_core(at::empty(sizes), inputs_of(c)).sizes(), (at::IntArrayRef{sizes[0], sizes[1], 16}));
  }
}

TEST(AttentionTiled, OnMetaOnlyShapes) {
  const auto meta = at::TensorOptions(at::kBFloat16).device(at::kMeta);
  AttentionInputs inputs = inputs_of({.shape = {4, 2, 8}});
  inputs.segments = at::empty({2, 5}, at::TensorOptions(at::kLong).device(at::kMeta));
  inputs.dropout.emplace(0.3, test::FakeContext(), 0);
  const at::Tensor qkv = at::empty({2, 5, 64}, meta).set_requires_grad(true);
  const at::Tensor out = attention_core(qkv, inputs);
  EXPECT_TRUE(out.is_meta());
  EXPECT_EQ(out.sizes(), (at::IntArrayRef{2, 5, 32}));
  const at::Tensor dqkv = torch::autograd::grad({out}, {qkv}, {at::empty_like(out)})[0];
  EXPECT_TRUE(dqkv.is_meta());
  EXPECT_EQ(dqkv.sizes(), qkv.sizes());
  EXPECT_EQ(dqkv.scalar_type(), at::kBFloat16);
}

TEST(AttentionTiled, RefusesOtherDtypes) {
  const TiledCase c;
  EXPECT_THROW(attention_core(at::ones({1, 2, c.shape.columns()}, at::kLong), inputs_of(c)), Misuse);
}

}  // namespace
}  // namespace zt::nn
