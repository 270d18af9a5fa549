// Attention on a GPU, by ATen.
#pragma once

#include "attention_tiled.h"

namespace zt::nn {

// Returns the keys or values [B, K, T, D] of each query head [B, H, T, D], differentiable without atomic sums.
at::Tensor by_query_head(const at::Tensor& x, const AttentionShape& shape);
// Returns the sums [B, K, T, D] over the query heads that share a key head.
at::Tensor by_key_head(const at::Tensor& x, const AttentionShape& shape);

// Computes the same as attention_core with ATen's operators and their gradients, on any device. Without dropout it calls ATen's
// scaled_dot_product_attention, which chooses a fused kernel; with segments or a window it passes a mask [B, 1, T, T]. Our
// dropout mask does not fit into fused kernels, so with dropout the weights [B, H, T, T] are held in memory.
at::Tensor attention_by_aten(const at::Tensor& qkv, const AttentionInputs& inputs);

// Compute the same as attention_forward and attention_backward of attention_tiled.h with ATen's operators, on any device. The
// scores [B, H, S, T] of the block are held in memory in the wide dtype; with dropout also a mask of bytes.
void block_forward_by_aten(const at::Tensor& out, const at::Tensor& logsumexp, const AttentionViews& in,
                           const AttentionTokens& tokens, const AttentionRule& rule);
void block_backward_by_aten(const AttentionViews& grads, GradientSum sum, const at::Tensor& dout, const AttentionViews& in,
                            const at::Tensor& out, const at::Tensor& logsumexp, const AttentionTokens& tokens,
                            const AttentionRule& rule);

}  // namespace zt::nn
