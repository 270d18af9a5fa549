// softmax(q k^T / sqrt(head_dim)) v with its backward, on one tensor that holds queries, keys and values.
//
// Dims: B samples, T tokens per sample, H query heads, K key heads (H is a multiple of K), D head_dim.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

#include "attention/visibility.h"
#include "parts/dropout.h"
#include "parts/rotary.h"

namespace zt::nn {

struct AttentionShape {
  int64_t heads = 0;     // H
  int64_t kv_heads = 0;  // K
  int64_t head_dim = 0;  // D
  int64_t columns() const { return (heads + 2 * kv_heads) * head_dim; }
};

struct AttentionInputs {
  AttentionShape shape;
  Visibility sees;
  std::optional<Angles> angles;        // rotary positions, if any
  at::Tensor segments;                 // [B, T] int64: tokens attend only to their own segment; undefined: one segment
  std::optional<DropoutMask> dropout;  // dropout of the weights [B, H, T, T], if any
};

// Returns the result of attention [B, T, H D] with autograd. qkv: [B, T, (H + 2K) D] contiguous, float16, bfloat16, float32 or
// float64, with query heads, then key heads, then value heads. qkv is rotated in place, so the caller must not use it afterwards.
// Keeps the result, qkv and [B, H, T] for the backward. On meta only shapes are computed, and of `inputs` only `shape` is read.
at::Tensor attention_core(const at::Tensor& qkv, AttentionInputs inputs);

}  // namespace zt::nn
