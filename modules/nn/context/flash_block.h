// Attention of a block by ATen's flash attention, which holds no scores. Like attention_forward and attention_backward of
// attention/attention_tiled.h.
#pragma once

#include <optional>

#include "attention/attention_tiled.h"

namespace zt::nn {

// A part of a block in which queries see all keys, or, with `is_causal`, as many keys as queries, each those up to its own.
struct FlashPart {
  Share queries, keys;  // rows
  bool is_causal;
};

// Returns the parts of a block that queries see; nothing where it does not consist of such parts.
std::optional<std::vector<FlashPart>> flash_parts(const AttentionTokens& tokens, const Visibility& sees);

// Returns the parts of a block that ATen's kernel for its device can compute: without window, dropout and documents; on a GPU in
// 16 bits with heads of at most 256 columns, a multiple of 8.
std::optional<std::vector<FlashPart>> flash_parts_of(const AttentionViews& in, const AttentionTokens& tokens,
                                                     const AttentionRule& rule);

// The results of parts are rounded to the dtype of `in`, and joined in the wide dtype.
void flash_block_forward(const at::Tensor& out, const at::Tensor& logsumexp, const AttentionViews& in,
                         const std::vector<FlashPart>& parts, const AttentionRule& rule);
// The gradients of parts are rounded to the dtype of `in`, and added in the wide dtype.
void flash_block_backward(const AttentionViews& grads, GradientSum sum, const at::Tensor& dout, const AttentionViews& in,
                          const at::Tensor& out, const at::Tensor& logsumexp, const std::vector<FlashPart>& parts,
                          const AttentionRule& rule);

}  // namespace zt::nn
