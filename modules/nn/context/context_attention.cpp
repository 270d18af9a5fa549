#include "context_attention.h"

#include "context_methods.h"
#include "parts/function.h"

namespace zt::nn {

namespace {

struct ContextFunction : torch::autograd::Function<ContextFunction> {
  static at::Tensor forward(AutogradContext* node, const at::Tensor& qkv, ContextCall call, bool is_ring) {
    const AttentionInputs& inputs = call.inputs;
    if (inputs.angles) rotate_heads(qkv, *inputs.angles, inputs.shape.heads + inputs.shape.kv_heads, Turn::forward);
    const BlockResult result = is_ring ? ring_forward(call, qkv) : gather_forward(call, qkv);
    node->save_for_backward({qkv.detach(), result.out, result.logsumexp});
    node->saved_data["is_ring"] = is_ring;
    keep(node, std::move(call));
    return result.out;
  }

  static variable_list backward(AutogradContext* node, variable_list grads) {
    const auto& call = kept<ContextCall>(node);
    const AttentionInputs& inputs = call.inputs;
    const auto saved = node->get_saved_variables();
    const at::Tensor &qkv = saved[0], dqkv = at::empty_like(qkv), dout = grads[0].contiguous();
    const BlockResult result{saved[1], saved[2]};
    if (node->saved_data.at("is_ring").toBool()) ring_backward(call, dqkv, dout, qkv, result);
    else gather_backward(call, dqkv, dout, qkv, result);
    if (inputs.angles) rotate_heads(dqkv, *inputs.angles, inputs.shape.heads + inputs.shape.kv_heads, Turn::back);
    return {dqkv, {}, {}};
  }
};

// Returns the heads that a rank has of `shape`: a share of the query heads, and the key heads that these need.
struct HeadsOfRank {
  Share queries, keys;
};
HeadsOfRank heads_of_rank(const AttentionShape& shape, int ranks, int rank) {
  const Share queries = share_of(shape.heads, ranks, rank);
  const int64_t first = shape.kv_of(queries.begin);
  return {queries, {first, shape.kv_of(queries.end() - 1) + 1 - first}};
}

at::Tensor ulysses_attention(const at::Tensor& qkv, const ContextCall& call) {
  const AttentionShape& shape = call.inputs.shape;
  const int ranks = call.ranks();
  const int64_t dim = shape.head_dim;
  ColumnsOfRanks joined, queries;
  for (int rank = 0; rank < ranks; ++rank) {
    const HeadsOfRank heads = heads_of_rank(shape, ranks, rank);
    const auto columns = [&](int64_t before, Share of) { return Share{(before + of.begin) * dim, of.count * dim}; };
    queries.push_back({columns(0, heads.queries)});
    joined.push_back(
        {columns(0, heads.queries), columns(shape.heads, heads.keys), columns(shape.heads + shape.kv_heads, heads.keys)});
  }
  const HeadsOfRank own = heads_of_rank(shape, ranks, call.places().rank);
  AttentionInputs inputs = call.inputs;
  inputs.angles.reset();
  inputs.segments = whole_segments(call);
  inputs.first_head += own.queries.begin;
  inputs.shape = {own.queries.count, own.keys.count, dim, shape.group_size(),
                  own.queries.begin + shape.offset - own.keys.begin * shape.group_size()};
  const at::Tensor turned = call.inputs.angles ? rotate_joined(qkv, call.inputs) : qkv;
  const at::Tensor out = attention_core(exchange_to_heads(call, joined, turned), std::move(inputs));
  return exchange_to_tokens(call, queries, out);
}

}  // namespace

at::Tensor context_attention(const at::Tensor& qkv, AttentionInputs inputs, const ContextAxis& axis, Context& context) {
  if (inputs.segments.defined()) inputs.segments = inputs.segments.contiguous();
  ContextCall call{std::move(inputs), &context, axis.name()};
  if (axis.method() == ContextMethod::ulysses) return ulysses_attention(qkv, call);
  return ContextFunction::apply(qkv, std::move(call), axis.method() == ContextMethod::ring);
}

}  // namespace zt::nn
