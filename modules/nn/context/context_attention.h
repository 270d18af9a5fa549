// Attention of samples whose tokens are cut over the ranks of an axis.
//
// Dims as in attention_core.h. S tokens of this rank, T of all ranks.
#pragma once

#include "attention/attention_tiled.h"
#include "context_axis.h"

namespace zt::nn {

// Returns attention_core of all ranks' tokens for those of this rank, [B, S, H D] with autograd. qkv and inputs are those of
// attention_core for this rank's tokens; qkv is rotated in place. All ranks of the axis call it in the same order. Keeps the
// result, qkv and [B, H, S] for the backward, with ulysses all tokens of the rank's heads instead.
at::Tensor context_attention(const at::Tensor& qkv, AttentionInputs inputs, const ContextAxis& axis, Context& context);

}  // namespace zt::nn
