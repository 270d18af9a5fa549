#include "attention_core.h"

#include "attention_cuda.h"
#include "attention_tiled.h"
#include "parts/function.h"
#include "zt/base/rows.h"
#include "zt/gemm/flop_watch.h"

namespace zt::nn {

namespace {

struct RotateFunction : torch::autograd::Function<RotateFunction> {
  static at::Tensor forward(AutogradContext* node, const at::Tensor& qkv, AttentionInputs inputs) {
    rotate_heads(qkv, *inputs.angles, inputs.shape.heads + inputs.shape.kv_heads, Turn::forward);
    node->mark_dirty({qkv});
    keep(node, std::move(inputs));
    return qkv;
  }
  static variable_list backward(AutogradContext* node, variable_list grads) {
    const auto& inputs = kept<AttentionInputs>(node);
    const at::Tensor dqkv = grads[0].clone(at::MemoryFormat::Contiguous);  // a copy, because autograd may share grads[0]
    rotate_heads(dqkv, *inputs.angles, inputs.shape.heads + inputs.shape.kv_heads, Turn::back);
    return {dqkv, {}};
  }
};

struct AttentionFunction : torch::autograd::Function<AttentionFunction> {
  static at::Tensor forward(AutogradContext* node, const at::Tensor& qkv, AttentionInputs inputs) {
    const AttentionShape& shape = inputs.shape;
    const int64_t B = qkv.size(0), T = qkv.size(1);
    const at::Tensor out = at::empty({B, T, shape.heads * shape.head_dim}, qkv.options());
    const at::Tensor logsumexp = at::empty({B, shape.heads, T}, qkv.options().dtype(wide_dtype(qkv.scalar_type())));
    const AttentionTokens tokens = whole_tokens(T, inputs.segments);
    if (qkv.is_meta()) count_products(B, tokens, inputs, 2);
    if (inputs.angles) rotate_heads(qkv, *inputs.angles, shape.heads + shape.kv_heads, Turn::forward);
    attention_forward(out, logsumexp, views_of(qkv, shape), tokens, inputs);
    node->save_for_backward({qkv.detach(), out, logsumexp});
    keep(node, std::move(inputs));
    return out;
  }

  static variable_list backward(AutogradContext* node, variable_list grads) {
    const auto& inputs = kept<AttentionInputs>(node);
    const AttentionShape& shape = inputs.shape;
    const auto saved = node->get_saved_variables();
    const at::Tensor &qkv = saved[0], &out = saved[1], &logsumexp = saved[2];
    const at::Tensor dqkv = at::empty_like(qkv);
    const AttentionTokens tokens = whole_tokens(qkv.size(1), inputs.segments);
    if (qkv.is_meta()) count_products(qkv.size(0), tokens, inputs, 5);
    attention_backward(views_of(dqkv, shape), GradientSum::write, grads[0].contiguous(), views_of(qkv, shape), out, logsumexp,
                       tokens, inputs);
    if (inputs.angles) rotate_heads(dqkv, *inputs.angles, shape.heads + shape.kv_heads, Turn::back);
    return {dqkv, {}};
  }
};

}  // namespace

AttentionViews views_of(const at::Tensor& joined, const AttentionShape& shape) {
  const int64_t queries = shape.heads * shape.head_dim, keys = shape.kv_heads * shape.head_dim;
  return {joined.narrow(2, 0, queries), joined.narrow(2, queries, keys), joined.narrow(2, queries + keys, keys)};
}

AttentionTokens whole_tokens(int64_t total, const at::Tensor& segments) {
  return {PlaceRanges::whole(total), PlaceRanges::whole(total), total, segments, segments};
}

void count_products(int64_t samples, const AttentionTokens& tokens, const AttentionRule& rule, int products) {
  const double pairs = rule.sees.pairs(tokens.queries, tokens.keys, tokens.total);
  count_flops(products * 2 * pairs * static_cast<double>(rule.shape.head_dim * rule.shape.heads * samples));
}

at::Tensor rotate_joined(const at::Tensor& qkv, const AttentionInputs& inputs) {
  return run_function<RotateFunction>(qkv, inputs);
}

at::Tensor attention_core(const at::Tensor& qkv, AttentionInputs inputs) {
  if (qkv.numel() == 0) return qkv.narrow(2, 0, inputs.shape.heads * inputs.shape.head_dim);
  if (inputs.segments.defined()) inputs.segments = inputs.segments.contiguous();
  if (qkv.is_cuda()) return attention_by_aten(qkv, inputs);
  return run_function<AttentionFunction>(qkv, std::move(inputs));
}

}  // namespace zt::nn
