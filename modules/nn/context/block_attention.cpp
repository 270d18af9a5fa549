#include "block_attention.h"

#include "attention/attention_cuda.h"
#include "flash_block.h"

namespace zt::nn {

void forward_block(const ContextCall& call, const BlockResult& result, const AttentionViews& in, const AttentionTokens& tokens) {
  if (in.queries.is_meta()) count_products(in.queries.size(0), tokens, call.inputs, 2);
  if (in.queries.is_cuda()) {
    const auto parts = flash_parts_of(in, tokens, call.inputs);
    if (parts) return flash_block_forward(result.out, result.logsumexp, in, *parts, call.inputs);
    return block_forward_by_aten(result.out, result.logsumexp, in, tokens, call.inputs);
  }
  attention_forward(result.out, result.logsumexp, in, tokens, call.inputs);
}

void backward_block(const ContextCall& call, const AttentionViews& grads, GradientSum sum, const at::Tensor& dout,
                    const AttentionViews& in, const BlockResult& result, const AttentionTokens& tokens) {
  if (in.queries.is_meta()) count_products(in.queries.size(0), tokens, call.inputs, 5);
  if (in.queries.is_cuda()) {
    const auto parts = flash_parts_of(in, tokens, call.inputs);
    if (parts) return flash_block_backward(grads, sum, dout, in, result.out, result.logsumexp, *parts, call.inputs);
    return block_backward_by_aten(grads, sum, dout, in, result.out, result.logsumexp, tokens, call.inputs);
  }
  attention_backward(grads, sum, dout, in, result.out, result.logsumexp, tokens, call.inputs);
}

}  // namespace zt::nn
