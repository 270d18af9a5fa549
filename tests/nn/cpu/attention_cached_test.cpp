// Compares attention over a cache with attention over whole samples.
#include "attention/attention_cached.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <numeric>
#include <random>

#include "attention/attention_tiled.h"
#include "narrow.h"
#include "zt/base/error.h"

namespace zt::nn {
namespace {

struct CachedCase {
  AttentionShape shape{4, 2, 16};
  int64_t block = 16, window = 0;
  std::vector<int64_t> lengths{70, 1, 33};  // of the sequences
  at::ScalarType dtype = at::kFloat, cache = at::kFloat;
};

// A cache whose unwritten elements are nan, and sequences that have blocks in a random order.
class CacheOf {
 public:
  CacheOf(const CachedCase& c, std::mt19937& random) {
    std::vector<int32_t> free;
    for (const int64_t length : c.lengths)
      sequences.push_back({.past = 0, .blocks = std::vector<int32_t>((length + c.block - 1) / c.block)});
    for (const KvSequence& sequence : sequences) blocks += static_cast<int64_t>(sequence.blocks.size());
    free.resize(blocks);
    std::iota(free.begin(), free.end(), 0);
    std::shuffle(free.begin(), free.end(), random);
    for (KvSequence& sequence : sequences) {
      for (int32_t& block : sequence.blocks) block = free.back(), free.pop_back();
    }
    const auto filled = [&](at::IntArrayRef sizes) {
      return c.cache == at::kChar ? at::full(sizes, 111, at::kChar) : at::full(sizes, std::nan(""), c.cache);
    };
    layer.keys = filled({blocks, c.shape.kv_heads, c.shape.head_dim, c.block});
    layer.values = filled({blocks, c.shape.kv_heads, c.block, c.shape.head_dim});
    if (c.cache != at::kChar) return;
    layer.key_scales = at::full({blocks, c.shape.kv_heads, c.block}, std::nan(""), at::kHalf);
    layer.value_scales = layer.key_scales.clone();
  }

  std::vector<KvSequence> sequences;  // without rows
  KvLayer layer;
  int64_t blocks = 0;
};

AttentionRule rule_of(const CachedCase& c) {
  AttentionRule rule;
  rule.shape = c.shape;
  rule.sees = {true, c.window};
  return rule;
}

// Returns the results of each sequence [length, H D], whose rows come in chunks of at most `most` tokens in a random order.
// run(qkv, rule, rows): attention_cached or its twin.
template <class Run>
std::vector<at::Tensor> by_chunks(const CachedCase& c, const std::vector<at::Tensor>& qkv, int64_t most, uint32_t seed,
                                  const Run& run) {
  std::mt19937 random(seed);
  CacheOf cache(c, random);
  std::vector<at::Tensor> results;
  for (const at::Tensor& of : qkv) results.push_back(at::empty({of.size(0), c.shape.heads * c.shape.head_dim}, of.options()));
  for (;;) {
    std::vector<KvSequence> step;
    std::vector<at::Tensor> parts;
    std::vector<size_t> chosen;
    int64_t first = 0;
    for (size_t s = 0; s < qkv.size(); ++s) {
      KvSequence& sequence = cache.sequences[s];
      const int64_t left = c.lengths[s] - sequence.past;
      if (left == 0 || random() % 4 == 0) continue;
      KvSequence& part = step.emplace_back(sequence);
      part.first_row = first;
      part.rows = std::min<int64_t>(left, 1 + static_cast<int64_t>(random() % most));
      parts.push_back(qkv[s].narrow(0, sequence.past, part.rows));
      first += part.rows;
      chosen.push_back(s);
    }
    if (std::all_of(cache.sequences.begin(), cache.sequences.end(),
                    [&](const KvSequence& each) { return each.past == c.lengths[&each - cache.sequences.data()]; }))
      return results;
    if (step.empty()) continue;
    const at::Tensor out = run(at::cat(parts).unsqueeze(0), rule_of(c), CachedRows{cache.layer, c.block, step});
    for (size_t i = 0; i < step.size(); ++i) {
      results[chosen[i]].narrow(0, step[i].past, step[i].rows).copy_(out[0].narrow(0, step[i].first_row, step[i].rows));
      cache.sequences[chosen[i]].past += step[i].rows;
    }
  }
}

const auto kByKernel = [](const at::Tensor& qkv, const AttentionRule& rule, const CachedRows& rows) {
  return attention_cached(qkv, rule, rows);
};

std::vector<at::Tensor> random_rows(const CachedCase& c) {
  std::vector<at::Tensor> all;
  for (const int64_t length : c.lengths) all.push_back(at::randn({length, c.shape.columns()}, at::kDouble).to(c.dtype));
  return all;
}

// Returns what attention_forward makes of each sequence alone.
std::vector<at::Tensor> of_whole(const CachedCase& c, const std::vector<at::Tensor>& qkv) {
  std::vector<at::Tensor> all;
  for (const at::Tensor& of : qkv) {
    const at::Tensor out = at::empty({1, of.size(0), c.shape.heads * c.shape.head_dim}, of.options());
    const at::Tensor logsumexp =
        at::empty({1, c.shape.heads, of.size(0)}, of.options().dtype(c.dtype == at::kDouble ? at::kDouble : at::kFloat));
    attention_forward(out, logsumexp, views_of(of.unsqueeze(0), c.shape), whole_tokens(of.size(0), {}), rule_of(c));
    all.push_back(out[0]);
  }
  return all;
}

std::vector<CachedCase> cached_cases() {
  return {
      {},
      {.shape = {3, 3, 40}, .block = 8, .lengths = {700, 5, 130}},
      {.shape = {8, 1, 64}, .block = 32, .lengths = {1100}},
      {.shape = {8, 2, 64}, .block = 32, .window = 50, .lengths = {1100, 90}},
      {.shape = {2, 2, 8}, .block = 24, .window = 600, .lengths = {1300}},
      {.shape = {5, 3, 16, 2, 1}, .lengths = {65, 40}},  // a part of all heads: the first key head has one query head here
      {.shape = {40, 1, 8}, .lengths = {70}},            // more heads than a tile has rows
      {.dtype = at::kBFloat16, .cache = at::kBFloat16},
      {.shape = {8, 2, 64}, .lengths = {600, 20}, .dtype = at::kHalf, .cache = at::kHalf},
      {.shape = {2, 1, 20}, .window = 7, .dtype = at::kDouble, .cache = at::kDouble},
  };
}

TEST(AttentionCached, HasTheBitsOfWholeSamplesInChunksOfAnySize) {
  uint32_t seed = 1;
  for (const CachedCase& c : cached_cases()) {
    const std::vector<at::Tensor> qkv = random_rows(c), expected = of_whole(c, qkv);
    for (const int64_t most : {1, 7, 100, 512}) {
      const std::vector<at::Tensor> got = by_chunks(c, qkv, most, seed++, kByKernel);
      for (size_t s = 0; s < got.size(); ++s)
        EXPECT_TRUE(got[s].equal(expected[s]))
            << "heads " << c.shape.heads << ", window " << c.window << ", chunks up to " << most << ", sequence " << s;
    }
  }
}

TEST(AttentionCached, HasTheSameBitsOnEveryInstructionSet) {
  const CachedCase c{.shape = {8, 2, 64}, .lengths = {600, 90}};
  const std::vector<at::Tensor> qkv = random_rows(c), expected = by_chunks(c, qkv, 100, 3, kByKernel);
  for (const Isa isa : {Isa::plain, Isa::avx2}) {
    const auto got =
        by_chunks(c, qkv, 100, 3, [isa](const at::Tensor& rows, const AttentionRule& rule, const CachedRows& cached) {
          return attention_cached(rows, rule, cached, isa);
        });
    for (size_t s = 0; s < got.size(); ++s) EXPECT_TRUE(got[s].equal(expected[s]));
  }
}

TEST(AttentionCached, KeepsTheBitsOfAnInt8CacheInChunksOfAnySize) {
  for (const int64_t block : {8, 16, 32}) {
    const CachedCase c{.shape = {8, 2, 64}, .block = block, .lengths = {600, 90}, .dtype = at::kBFloat16, .cache = at::kChar};
    at::manual_seed(5);
    const std::vector<at::Tensor> qkv = random_rows(c);
    static std::vector<at::Tensor> expected;
    if (expected.empty()) expected = by_chunks(c, qkv, 512, 3, kByKernel);
    const auto got = by_chunks(c, qkv, 7, 4, kByKernel);
    for (size_t s = 0; s < got.size(); ++s) EXPECT_TRUE(got[s].equal(expected[s]));
  }
}

// An int8 element is off by half of 1/127 of the largest of its row: of keys that is an error of the scores, of values one of the
// result.
TEST(AttentionCached, RoundsToInt8ByTheLargestElementOfAHead) {
  const CachedCase c{.shape = {4, 2, 64}, .lengths = {300}, .cache = at::kChar};
  const std::vector<at::Tensor> qkv = random_rows(c), exact = of_whole(c, qkv);
  const auto got = by_chunks(c, qkv, 100, 3, kByKernel);
  const at::Tensor keys = qkv[0].narrow(1, 4 * 64, 2 * 64).unflatten(1, {2, 64}),
                   values = qkv[0].narrow(1, 6 * 64, 2 * 64).unflatten(1, {2, 64});
  const double of_score = 0.5 / 127 * keys.abs().amax().item<double>() *
                          qkv[0].narrow(1, 0, 4 * 64).unflatten(1, {4, 64}).abs().sum(-1).amax().item<double>() / 8;
  const double bound = 0.5 / 127 * values.abs().amax().item<double>() * 1.01 + 2 * of_score * values.abs().amax().item<double>();
  EXPECT_LT((got[0] - exact[0]).abs().max().item<double>(), bound);
  EXPECT_GT((got[0] - exact[0]).abs().max().item<double>(), 0);
}

TEST(AttentionCached, AgreesWithAten) {
  uint32_t seed = 100;
  for (CachedCase c : cached_cases()) {
    if (c.dtype == at::kBFloat16 || c.dtype == at::kHalf) continue;  // ATen rounds the weights
    for (const at::ScalarType cache : {c.dtype, at::kChar}) {
      c.cache = cache;
      const std::vector<at::Tensor> qkv = random_rows(c);
      const auto expected =
          by_chunks(c, qkv, 100, seed, [](const at::Tensor& rows, const AttentionRule& rule, const CachedRows& cached) {
            return attention_cached_by_aten(rows, rule, cached);
          });
      const auto got = by_chunks(c, qkv, 100, seed++, kByKernel);
      for (size_t s = 0; s < got.size(); ++s) EXPECT_LT(test::excess(got[s], expected[s].to(at::kDouble), 8), 1);
    }
  }
}

TEST(AttentionCached, RefusesACacheOfAnotherDtype) {
  const CachedCase c{.cache = at::kBFloat16};
  EXPECT_THROW(by_chunks(c, random_rows(c), 10, 1, kByKernel), Misuse);
}

}  // namespace
}  // namespace zt::nn
