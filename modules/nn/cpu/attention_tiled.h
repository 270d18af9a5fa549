// Attention on the CPU in tiles (Dao et al. 2022): scores of a few queries and keys at a time, never [T, T], straight from the
// joined tensor of queries, keys and values and straight into the joined gradient.
//
// Scores, softmax and sums are float32 for 16-bit inputs and float32, float64 for float64. A tile of
// queries is one task of the forward; a pair (sample, key head), in one order, one of the backward: the bits do not depend on the
// number of threads, nor on `isa`.
//
// Dims: B samples, T places, H query heads, K key heads, D head_dim.
#pragma once

#include "attention_core.h"
#include "zt/base/isa.h"

namespace zt::nn {

// qkv: [B, T, (H + 2K) D] contiguous; writes out [B, T, H D] and logsumexp of the scores [B, H, T] (float32, or float64 for
// float64), both contiguous. Misuse for other dtypes than float16, bfloat16, float32 and float64.
void attention_forward(const at::Tensor& out, const at::Tensor& logsumexp, const at::Tensor& qkv, const AttentionInputs& inputs,
                       Isa isa = best_isa());

// dqkv: as qkv, written. dout: [B, T, H D] contiguous; the others as attention_forward had and left them.
void attention_backward(const at::Tensor& dqkv, const at::Tensor& dout, const at::Tensor& qkv, const at::Tensor& out,
                        const at::Tensor& logsumexp, const AttentionInputs& inputs, Isa isa = best_isa());

}  // namespace zt::nn
