// Attention on the CPU in tiles (Dao et al. 2022). It computes the scores of a few queries and keys at a time and never holds [T,
// T]. It reads the tensor that holds queries, keys and values directly, and writes its gradient directly.
//
// Scores, softmax and sums are float32 for 16-bit and float32 inputs, float64 for float64. A task of the forward is a tile of
// queries. A task of the backward is a pair (sample, key head), which adds in a fixed order. So the bits depend neither on the
// number of threads nor on `isa`.
//
// On device meta both functions compute nothing, and allocate for the time of the call what one thread does.
//
// Dims: B samples, T tokens per sample, H query heads, K key heads, D head_dim.
#pragma once

#include "attention_core.h"
#include "zt/base/isa.h"

namespace zt::nn {

// Writes out [B, T, H D] and the logsumexp of the scores [B, H, T] (float32, or float64 for float64), both contiguous.
// qkv: [B, T, (H + 2K) D] contiguous. Throws Misuse for dtypes other than float16, bfloat16, float32 and float64.
void attention_forward(const at::Tensor& out, const at::Tensor& logsumexp, const at::Tensor& qkv, const AttentionInputs& inputs,
                       Isa isa = best_isa());

// Writes dqkv, the gradient of qkv, of the same shape. dout: [B, T, H D] contiguous, the gradient of out. The other arguments are
// those of attention_forward, with the out and logsumexp that it wrote.
void attention_backward(const at::Tensor& dqkv, const at::Tensor& dout, const at::Tensor& qkv, const at::Tensor& out,
                        const at::Tensor& logsumexp, const AttentionInputs& inputs, Isa isa = best_isa());

}  // namespace zt::nn
