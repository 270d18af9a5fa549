#include "attention_core.h"

#include "attention_cuda.h"
#include "attention_tiled.h"
#include "parts/function.h"
#include "zt/base/rows.h"
#include "zt/gemm/flop_watch.h"

namespace zt::nn {

namespace {

// Counts products of [T, D] by [D, T] for each sample and head, of which a part is needed.
void count_products(const at::Tensor& qkv, const AttentionInputs& inputs, int products) {
  const auto T = static_cast<double>(qkv.size(1));
  const double each = 2 * T * T * static_cast<double>(inputs.shape.head_dim * inputs.shape.heads * qkv.size(0));
  count_flops(products * each * inputs.sees.share());
}

struct AttentionFunction : torch::autograd::Function<AttentionFunction> {
  static at::Tensor forward(AutogradContext* node, const at::Tensor& qkv, AttentionInputs inputs) {
    const AttentionShape& shape = inputs.shape;
    const int64_t B = qkv.size(0), T = qkv.size(1);
    const at::Tensor out = at::empty({B, T, shape.heads * shape.head_dim}, qkv.options());
    const at::Tensor logsumexp = at::empty({B, shape.heads, T}, qkv.options().dtype(wide_dtype(qkv.scalar_type())));
    if (qkv.is_meta()) count_products(qkv, inputs, 2);
    if (inputs.angles) rotate_heads(qkv, *inputs.angles, shape.heads + shape.kv_heads, Turn::forward);
    attention_forward(out, logsumexp, qkv, inputs);
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
    if (qkv.is_meta()) count_products(qkv, inputs, 5);
    attention_backward(dqkv, grads[0].contiguous(), qkv, out, logsumexp, inputs);
    if (inputs.angles) rotate_heads(dqkv, *inputs.angles, shape.heads + shape.kv_heads, Turn::back);
    return {dqkv, {}};
  }
};

}  // namespace

at::Tensor attention_core(const at::Tensor& qkv, AttentionInputs inputs) {
  if (qkv.numel() == 0) return qkv.narrow(2, 0, inputs.shape.heads * inputs.shape.head_dim);
  if (inputs.segments.defined()) inputs.segments = inputs.segments.contiguous();
  if (qkv.is_cuda()) return attention_by_aten(qkv, inputs);
  return AttentionFunction::apply(qkv, std::move(inputs));
}

}  // namespace zt::nn
