#include "head_norm.h"

#include "norm_rows.h"
#include "parts/function.h"
#include "zt/base/rows.h"

namespace zt::nn {

namespace {

// The heads of one kind and their weight.
struct NormedHeads {
  RowParts parts;
  at::Tensor weight;
  Context::SinkFn sink;
};

struct HeadNormState {
  NormedHeads queries, keys;
  double eps;
};

// Copies the columns after the query heads and key heads.
void copy_values(const at::Tensor& to, const at::Tensor& from, const HeadNormState& state) {
  const RowParts& keys = state.keys.parts;
  const int64_t first = keys.first + keys.count * keys.width, count = from.size(1) - first;
  to.narrow(1, first, count).copy_(from.narrow(1, first, count));
}

struct HeadNormFunction : torch::autograd::Function<HeadNormFunction> {
  // The weights are those of the state; they are arguments only to tell autograd that the result depends on them.
  static at::Tensor forward(AutogradContext* node, const at::Tensor& qkv, const at::Tensor& query_weight,
                            const at::Tensor& key_weight, HeadNormState state) {
    const at::Tensor rows = as_rows(qkv), out = at::empty_like(rows);
    const auto norm = [&](const NormedHeads& heads, const at::Tensor& weight) {
      return norm_rows(out, rows, heads.parts, NormKind::rmsnorm, weight, {}, state.eps);
    };
    const at::Tensor query_stats = norm(state.queries, query_weight), key_stats = norm(state.keys, key_weight);
    copy_values(out, rows, state);
    node->save_for_backward({rows, query_stats, key_stats});
    keep(node, std::move(state));
    return in_shape_of(qkv, out);
  }

  static variable_list backward(AutogradContext* node, variable_list grads) {
    const auto& state = kept<HeadNormState>(node);
    const auto saved = node->get_saved_variables();
    const at::Tensor dy = as_rows(grads[0]), dx = at::empty_like(dy);
    const auto norm_backward = [&](const NormedHeads& heads, const at::Tensor& stats) {
      norm_rows_backward(dx, {dy, saved[0], heads.parts, heads.weight, stats}, heads.sink());
    };
    norm_backward(state.queries, saved[1]);
    norm_backward(state.keys, saved[2]);
    copy_values(dx, dy, state);
    return {in_shape_of(grads[0], dx), {}, {}, {}};
  }
};

}  // namespace

HeadNorm::HeadNorm(int64_t head_dim, double eps, const std::string& prefix)
    : eps_(eps),
      query_(make_vector(prefix + "q_norm.weight", head_dim, init_ones(), "head_dim")),
      key_(make_vector(prefix + "k_norm.weight", head_dim, init_ones(), "head_dim")) {}

at::Tensor HeadNorm::run(const at::Tensor& qkv, const AttentionShape& shape, Context& context) const {
  const RowParts queries{0, shape.heads, shape.head_dim};
  const RowParts keys{shape.heads * shape.head_dim, shape.kv_heads, shape.head_dim};
  HeadNormState state{{queries, context.param(*query_), context.grad_sink(*query_)},
                      {keys, context.param(*key_), context.grad_sink(*key_)},
                      eps_};
  return run_function<HeadNormFunction>(qkv, context.param(*query_), context.param(*key_), std::move(state));
}

}  // namespace zt::nn
