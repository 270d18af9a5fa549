// Attention on the CPU in tiles (Dao et al. 2022). It computes the scores of a few queries and keys at a time and never holds
// those of all. It reads views of the tensors that hold queries, keys and values, and writes their gradients to such views.
//
// Scores, softmax and sums are float32 for 16-bit and float32 inputs, float64 for float64: the wide dtype. A task of the forward
// is a tile of queries. A task of the backward is a pair (sample, key head), which adds in a fixed order. So the bits depend
// neither on the number of threads nor on `isa`.
//
// On device meta the functions compute nothing, and allocate for the time of the call what one thread does.
//
// Dims: B samples, S queries and T keys per sample, H query heads, K key heads, D head_dim.
#pragma once

#include "attention_core.h"
#include "zt/base/isa.h"

namespace zt::nn {

// Queries [B, S, H D], keys [B, T, K D] and values [B, T, K D], or their gradients. The last dim is contiguous; the others have
// any strides, so the tensors may be views of one that joins them.
struct AttentionViews {
  at::Tensor queries, keys, values;
};
// Returns the views of a tensor [B, T, (H + 2K) D] that joins them.
AttentionViews views_of(const at::Tensor& joined, const AttentionShape& shape);

// Which tokens the queries and the keys are. Without places in common, and where no query sees a key, there is no work.
struct AttentionTokens {
  PlaceRanges queries, keys;
  int64_t total = 0;                        // tokens of a sample
  at::Tensor query_segments, key_segments;  // [B, S] and [B, T] int64, contiguous; both undefined: one segment
};
// Returns those of whole samples.
AttentionTokens whole_tokens(int64_t total, const at::Tensor& segments);
// Counts the operations of matmuls of [S, D] by [D, T] for each sample and head, of which the visible pairs are needed.
void count_products(int64_t samples, const AttentionTokens& tokens, const AttentionRule& rule, int products);

// Writes out [B, S, H D], in the dtype of the views or the wide one, and the logsumexp of the scores [B, H, S] in the wide dtype,
// both contiguous. A query that sees no key has the out 0 and the logsumexp -inf. Throws Misuse for dtypes other than float16,
// bfloat16, float32 and float64.
void attention_forward(const at::Tensor& out, const at::Tensor& logsumexp, const AttentionViews& in,
                       const AttentionTokens& tokens, const AttentionRule& rule, Isa isa = best_isa());

enum class GradientSum : uint8_t { write, add };

// Writes the gradients of queries, keys and values to `grads`, or adds them. `grads` has the dtype of `in`, or the wide one.
// dout: [B, S, H D] contiguous, the gradient of out. `out` and `logsumexp` are those over all keys of the samples, of which `in`
// may have a part: the gradients are then those of that part.
void attention_backward(const AttentionViews& grads, GradientSum sum, const at::Tensor& dout, const AttentionViews& in,
                        const at::Tensor& out, const at::Tensor& logsumexp, const AttentionTokens& tokens,
                        const AttentionRule& rule, Isa isa = best_isa());

}  // namespace zt::nn
