// Keys and values of the tokens that a model has read, so that it need not read them again for each new token.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "zt/comm/mesh.h"

namespace zt {

// The rows of one sequence in a micro-batch [1, rows] that consists of rows of several sequences. Plain data.
struct KvSequence {
  int64_t first_row = 0, rows = 0;   // its rows in the micro-batch: its next tokens
  int64_t past = 0;                  // its tokens whose keys and values the cache has: the rows have the places from here on
  std::vector<int32_t> blocks = {};  // block i holds the tokens from i * KvCache::block() on; the last one may have more room
};

// The memory of one position. The keys of a block are transposed: those of one element of the head lie together. In int8, an
// element is a number times the scale of its token and head.
struct KvLayer {
  at::Tensor keys;                      // [blocks, heads, head_dim, tokens of a block], in the parameters' dtype or int8
  at::Tensor values;                    // [blocks, heads, tokens of a block, head_dim], in the same
  at::Tensor key_scales, value_scales;  // of int8: [blocks, heads, tokens of a block] float16
};

// The cache of a rank during one run of Trainer::infer. Threads: the rank's thread only.
class KvCache {
 public:
  virtual ~KvCache();
  virtual int64_t block() const = 0;  // tokens of a block
  // Returns the sequences of a micro-batch. Their rows follow each other and are all of its rows.
  virtual const std::vector<KvSequence>& sequences(int micro_batch) const = 0;
  // Returns the memory of a position. Its tensors are undefined if this rank keeps nothing for it.
  virtual const KvLayer& layer(int position) const = 0;
  // Returns LayerExtras::class_axis of the last layer if the logits of a rank's own classes are wanted; empty: those of all.
  virtual std::string class_axis() const { return {}; }
};

// Returns the bytes of keys and values that the rank `coord` keeps, for plans.
using CacheBytes = std::function<int64_t(const Coord& coord)>;

}  // namespace zt
