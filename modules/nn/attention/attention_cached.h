// Attention of new tokens of several sequences to the keys and values of their earlier ones, which a cache has.
//
// The steps of a query and their order are those of attention_forward for a whole sample: tiles of kKeys keys, ascending, from
// the panel of the first key that a panel of queries sees. So the bits of a row depend neither on the other rows, nor on how many
// tokens of the sequence come at once, nor on the size of blocks. They are those of attention_forward if the cache has the dtype
// of the rows.
//
// Dims: n rows, H query heads, K key heads, D head_dim.
#pragma once

#include "attention_core.h"
#include "zt/base/isa.h"
#include "zt/model/kv_cache.h"

namespace zt::nn {

// The memory of a position and the rows that use it.
struct CachedRows {
  const KvLayer& layer;
  int64_t block;  // tokens of a block
  const std::vector<KvSequence>& sequences;
};

// Writes the keys and values of the rows into the cache, then returns the result of attention [1, n, H D], without autograd.
// qkv: [1, n, (H + 2K) D] contiguous, with rotated query heads and key heads, then value heads. Attention is causal.
at::Tensor attention_cached(const at::Tensor& qkv, const AttentionRule& rule, const CachedRows& rows, Isa isa = best_isa());

// Compute the same with ATen's operators, one sequence after the other, on any device. They have other bits.
at::Tensor attention_cached_by_aten(const at::Tensor& qkv, const AttentionRule& rule, const CachedRows& rows);

}  // namespace zt::nn
