// softmax(q k^T / sqrt(head_dim)) v with its backward, on one tensor that holds queries, keys and values.
//
// Dims: B samples, T tokens per sample, H query heads, K key heads (H is a multiple of K, unless they are a part of all), D
// head_dim.
#pragma once

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <optional>

#include "attention/visibility.h"
#include "parts/dropout.h"
#include "parts/rotary.h"
#include "zt/base/box.h"

namespace zt::nn {

struct AttentionShape {
  int64_t heads = 0;     // H
  int64_t kv_heads = 0;  // K
  int64_t head_dim = 0;  // D
  // Query heads that share a key head, where the heads are a part of all; 0: H / K. The first key head may be shared with
  // `offset` query heads that come before these.
  int64_t group = 0, offset = 0;

  int64_t columns() const { return (heads + 2 * kv_heads) * head_dim; }
  int64_t group_size() const { return group > 0 ? group : heads / kv_heads; }
  int64_t kv_of(int64_t head) const { return (head + offset) / group_size(); }
  // Whether each key head is shared by equally many query heads.
  bool is_even() const { return offset == 0 && heads == kv_heads * group_size(); }
  // Returns the query heads that share a key head.
  Share heads_of(int64_t kv) const {
    const int64_t begin = std::max<int64_t>(kv * group_size() - offset, 0);
    return {begin, std::min(heads, (kv + 1) * group_size() - offset) - begin};
  }
};

// What does not depend on which tokens a tensor has.
struct AttentionRule {
  AttentionShape shape;
  Visibility sees;
  std::optional<DropoutMask> dropout;  // dropout of the weights [B, H, T, T], if any
  int64_t first_head = 0;              // of the query heads among all of the layer, for dropout
};

struct AttentionInputs : AttentionRule {
  std::optional<Angles> angles;  // rotary positions, if any
  at::Tensor segments;           // [B, T] int64: tokens attend only to their own segment; undefined: one segment
};

// Returns the result of attention [B, T, H D] with autograd. qkv: [B, T, (H + 2K) D] contiguous, float16, bfloat16, float32 or
// float64, with query heads, then key heads, then value heads. qkv is rotated in place, so the caller must not use it afterwards.
// Keeps the result, qkv and [B, H, T] for the backward. On meta only shapes are computed, and no tensor of `inputs` is read.
at::Tensor attention_core(const at::Tensor& qkv, AttentionInputs inputs);

// Rotates the query heads and key heads of qkv in place by inputs.angles, which must be given, with autograd. Returns qkv.
at::Tensor rotate_joined(const at::Tensor& qkv, const AttentionInputs& inputs);

}  // namespace zt::nn
