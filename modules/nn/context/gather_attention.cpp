#include <ATen/ATen.h>

#include "context_methods.h"
#include "zt/base/rows.h"

namespace zt::nn {

namespace {

AttentionTokens tokens_of_gather(const ContextCall& call) {
  const int64_t total = call.places().total;
  return {PlaceRanges(call.places().own()), PlaceRanges::whole(total), total, call.inputs.segments, whole_segments(call)};
}

// Returns the queries of this rank and the keys and values of all ranks.
AttentionViews with_all_tokens(const ContextCall& call, const AttentionViews& own) {
  const at::Tensor whole = gather_tokens(call, at::stack({own.keys, own.values}));
  return {own.queries, whole[0], whole[1]};
}

}  // namespace

BlockResult gather_forward(const ContextCall& call, const AttentionViews& own) {
  const at::Tensor& queries = own.queries;
  const AttentionViews in = with_all_tokens(call, own);
  const AttentionTokens tokens = tokens_of_gather(call);
  const auto wide = queries.options().dtype(wide_dtype(queries.scalar_type()));
  const BlockResult result{at::empty(queries.sizes(), queries.options()),
                           at::empty({queries.size(0), call.inputs.shape.heads, queries.size(1)}, wide)};
  forward_block(call, result, in, tokens);
  return result;
}

// Gathers keys and values again: kept, they would take the memory of all ranks' tokens.
void gather_backward(const ContextCall& call, const AttentionViews& grads, const at::Tensor& dout, const AttentionViews& own,
                     const BlockResult& result) {
  const AttentionViews in = with_all_tokens(call, own);
  const AttentionTokens tokens = tokens_of_gather(call);
  const auto wide = in.queries.options().dtype(wide_dtype(in.queries.scalar_type()));
  const at::Tensor queries = at::empty(in.queries.sizes(), wide);
  const at::Tensor whole = at::empty({2, in.keys.size(0), in.keys.size(1), in.keys.size(2)}, wide);
  backward_block(call, {queries, whole[0], whole[1]}, GradientSum::write, dout, in, result, tokens);
  const at::Tensor sums = scatter_token_sums(call, whole);
  grads.queries.copy_(queries);
  grads.keys.copy_(sums[0]);
  grads.values.copy_(sums[1]);
}

}  // namespace zt::nn
