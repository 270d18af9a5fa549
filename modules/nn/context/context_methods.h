// The methods of context_attention that keep this rank's tokens, as functions outside of autograd. Dims as in
// context_attention.h.
#pragma once

#include "block_attention.h"

namespace zt::nn {

// Return out [B, S, H D] in the dtype of `own`, and the logsumexp. own: this rank's tokens, rotated.
BlockResult ring_forward(const ContextCall& call, const AttentionViews& own);
BlockResult gather_forward(const ContextCall& call, const AttentionViews& own);

// Write `grads`, the gradients of `own`, from that of the out that the forward returned, which is contiguous as `result` is.
void ring_backward(const ContextCall& call, const AttentionViews& grads, const at::Tensor& dout, const AttentionViews& own,
                   const BlockResult& result);
void gather_backward(const ContextCall& call, const AttentionViews& grads, const at::Tensor& dout, const AttentionViews& own,
                     const BlockResult& result);

}  // namespace zt::nn
