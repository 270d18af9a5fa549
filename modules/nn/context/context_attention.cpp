#include "context_attention.h"

#include "context_methods.h"
#include "parts/function.h"

namespace zt::nn {

namespace {

// Query heads and the key heads that these need.
struct Heads {
  Share queries, keys;

  // Returns the shape of these heads of `all`.
  AttentionShape shape_of(const AttentionShape& all) const {
    return {queries.count, keys.count, all.head_dim, all.group_size(),
            queries.begin + all.offset - keys.begin * all.group_size()};
  }
};

// Returns the key heads in groups of `at_once`, with their query heads.
std::vector<Heads> groups_of(const AttentionShape& shape, int64_t at_once) {
  std::vector<Heads> groups;
  for (int64_t first = 0; first < shape.kv_heads; first += groups.back().keys.count) {
    const Share keys{first, std::min(at_once, shape.kv_heads - first)};
    const int64_t query = shape.heads_of(first).begin;
    groups.push_back({{query, shape.heads_of(keys.end() - 1).end() - query}, keys});
  }
  return groups;
}

// Attention by ring or gather, from its forward to its backward. It exchanges the keys and values of one group of heads after
// those of another.
struct ContextState {
  ContextCall call;
  std::vector<Heads> groups;
  bool is_ring;

  int64_t dim() const { return call.inputs.shape.head_dim; }
  at::Tensor columns_of(const at::Tensor& x, Share heads) const { return x.narrow(2, heads.begin * dim(), heads.count * dim()); }
  AttentionViews views(const at::Tensor& joined, const Heads& group) const {
    const AttentionViews all = views_of(joined, call.inputs.shape);
    return {columns_of(all.queries, group.queries), columns_of(all.keys, group.keys), columns_of(all.values, group.keys)};
  }
  ContextCall call_of(const Heads& group) const {
    ContextCall of_group = call;
    of_group.inputs.shape = group.shape_of(call.inputs.shape);
    of_group.inputs.first_head += group.queries.begin;
    return of_group;
  }
  BlockResult forward(const at::Tensor& qkv) const {
    std::vector<at::Tensor> outs, logsumexps;
    for (const Heads& group : groups) {
      const ContextCall of_group = call_of(group);
      const AttentionViews own = views(qkv, group);
      const BlockResult result = is_ring ? ring_forward(of_group, own) : gather_forward(of_group, own);
      if (groups.size() == 1) return result;
      outs.push_back(result.out);
      logsumexps.push_back(result.logsumexp);
    }
    return {at::cat(outs, 2), at::cat(logsumexps, 1)};
  }
  void backward(const at::Tensor& dqkv, const at::Tensor& dout, const at::Tensor& qkv, const BlockResult& result) const {
    for (const Heads& group : groups) {
      const Share& queries = group.queries;
      const BlockResult of_group{columns_of(result.out, queries).contiguous(),
                                 result.logsumexp.narrow(1, queries.begin, queries.count).contiguous()};
      const auto& run = is_ring ? ring_backward : gather_backward;
      run(call_of(group), views(dqkv, group), columns_of(dout, queries).contiguous(), views(qkv, group), of_group);
    }
  }
};

struct ContextFunction : torch::autograd::Function<ContextFunction> {
  static at::Tensor forward(AutogradContext* node, const at::Tensor& qkv, ContextState state) {
    const AttentionInputs& inputs = state.call.inputs;
    if (inputs.angles) rotate_heads(qkv, *inputs.angles, inputs.shape.heads + inputs.shape.kv_heads, Turn::forward);
    const BlockResult result = state.forward(qkv);
    node->save_for_backward({qkv.detach(), result.out, result.logsumexp});
    keep(node, std::move(state));
    return result.out;
  }

  static variable_list backward(AutogradContext* node, variable_list grads) {
    const auto& state = kept<ContextState>(node);
    const AttentionInputs& inputs = state.call.inputs;
    const auto saved = node->get_saved_variables();
    const at::Tensor dqkv = at::empty_like(saved[0]);
    state.backward(dqkv, grads[0], saved[0], {saved[1], saved[2]});
    if (inputs.angles) rotate_heads(dqkv, *inputs.angles, inputs.shape.heads + inputs.shape.kv_heads, Turn::back);
    return {dqkv, {}};
  }
};

// Returns the heads that a rank has of `shape`: a share of the query heads.
Heads heads_of_rank(const AttentionShape& shape, int ranks, int rank) {
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
    const Heads heads = heads_of_rank(shape, ranks, rank);
    const auto columns = [&](int64_t before, Share of) { return Share{(before + of.begin) * dim, of.count * dim}; };
    queries.push_back({columns(0, heads.queries)});
    joined.push_back(
        {columns(0, heads.queries), columns(shape.heads, heads.keys), columns(shape.heads + shape.kv_heads, heads.keys)});
  }
  const Heads own = heads_of_rank(shape, ranks, call.places().rank);
  AttentionInputs inputs = call.inputs;
  inputs.angles.reset();
  inputs.segments = whole_segments(call);
  inputs.first_head += own.queries.begin;
  inputs.shape = own.shape_of(shape);
  const at::Tensor turned = call.inputs.angles ? rotate_joined(qkv, call.inputs) : qkv;
  const at::Tensor out = attention_core(exchange_to_heads(call, joined, turned), std::move(inputs));
  return exchange_to_tokens(call, queries, out);
}

}  // namespace

at::Tensor context_attention(const at::Tensor& qkv, AttentionInputs inputs, const ContextAxis& axis, Context& context) {
  // They are exchanged as keys and values are. On a GPU that is done from its memory.
  if (inputs.segments.defined() && !qkv.is_cpu() && !qkv.is_meta())
    inputs.segments = inputs.segments.to(qkv.device(), /*non_blocking=*/true);
  if (inputs.segments.defined()) inputs.segments = inputs.segments.contiguous();
  ContextCall call{std::move(inputs), &context, axis.name()};
  if (axis.method() == ContextMethod::ulysses) return ulysses_attention(qkv, call);
  std::vector<Heads> groups = groups_of(call.inputs.shape, axis.heads_at_once());
  return run_function<ContextFunction>(qkv,
                                       ContextState{std::move(call), std::move(groups), axis.method() == ContextMethod::ring});
}

}  // namespace zt::nn
