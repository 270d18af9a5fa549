// softmax(q k^T / sqrt(head_dim)) v on the joined result of the projections, with its backward.
//
// Dims: B samples, T places, H query heads, K key heads (H is a multiple of K), D head_dim.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

#include "layers/dropout.h"
#include "layers/rotary.h"

namespace zt::nn {

struct AttentionShape {
  int64_t heads = 0;     // H
  int64_t kv_heads = 0;  // K
  int64_t head_dim = 0;  // D
  int64_t columns() const { return (heads + 2 * kv_heads) * head_dim; }
};

struct AttentionInputs {
  AttentionShape shape;
  bool causal = true;
  std::optional<Angles> angles;  // rotary positions, if any
  at::Tensor segments;           // [B, T] int64: places see their own segment only; undefined: all one
  std::optional<Keep> keep;      // dropout of the weights, as elements of [B, H, T, T], if any
};

// qkv: [B, T, (H + 2K) D] contiguous, float16, bfloat16, float32 or float64: the query heads, then keys, then values; it is used
// up (turned in place). Returns [B, T, H D], and keeps it, qkv and [B, H, T] for the backward. On meta only shapes are computed:
// of `inputs` nothing but the shape is read.
at::Tensor attention_core(const at::Tensor& qkv, AttentionInputs inputs);

}  // namespace zt::nn
