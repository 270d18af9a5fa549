// The methods of context_attention that keep this rank's tokens, as functions outside of autograd. Dims as in
// context_attention.h.
#pragma once

#include "block_attention.h"

namespace zt::nn {

// Return out [B, S, H D] in the dtype of qkv, and the logsumexp. qkv: [B, S, (H + 2K) D], rotated.
BlockResult ring_forward(const ContextCall& call, const at::Tensor& qkv);
BlockResult gather_forward(const ContextCall& call, const at::Tensor& qkv);

// Write dqkv, the gradient of qkv, from that of the out that the forward returned.
void ring_backward(const ContextCall& call, const at::Tensor& dqkv, const at::Tensor& dout, const at::Tensor& qkv,
                   const BlockResult& result);
void gather_backward(const ContextCall& call, const at::Tensor& dqkv, const at::Tensor& dout, const at::Tensor& qkv,
                     const BlockResult& result);

}  // namespace zt::nn
