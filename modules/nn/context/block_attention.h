// Attention of this rank's queries to some tokens, on the CPU or a GPU. On device meta it counts operations and allocates only.
#pragma once

#include "block_merge.h"
#include "token_exchange.h"

namespace zt::nn {

// Writes `result` as attention_forward does.
void forward_block(const ContextCall& call, const BlockResult& result, const AttentionViews& in, const AttentionTokens& tokens);
// Writes or adds gradients as attention_backward does.
void backward_block(const ContextCall& call, const AttentionViews& grads, GradientSum sum, const at::Tensor& dout,
                    const AttentionViews& in, const BlockResult& result, const AttentionTokens& tokens);

}  // namespace zt::nn
