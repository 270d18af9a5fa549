#include "attention_core.h"

#include <cmath>
#include <limits>

#include "function.h"

namespace zt::nn {

namespace {

struct Heads {
  at::Tensor q_BHTD, k_BHTD, v_BHTD;
};

// Views of the joined tensor; keys and values are repeated for the query heads that share them.
Heads split_heads(const at::Tensor& qkv, const AttentionShape& shape) {
  const int64_t B = qkv.size(0), T = qkv.size(1), D = shape.head_dim, groups = shape.heads / shape.kv_heads;
  const auto take = [&](int64_t first, int64_t heads) {
    return qkv.narrow(2, first * D, heads * D).view({B, T, heads, D}).transpose(1, 2);
  };
  const auto repeat = [&](const at::Tensor& x) { return groups == 1 ? x : x.repeat_interleave(groups, 1); };
  return {take(0, shape.heads), repeat(take(shape.heads, shape.kv_heads)),
          repeat(take(shape.heads + shape.kv_heads, shape.kv_heads))};
}

// The gradient of the joined tensor from those of the heads.
at::Tensor join_heads(const Heads& grads, const AttentionShape& shape) {
  const int64_t B = grads.q_BHTD.size(0), T = grads.q_BHTD.size(2), D = shape.head_dim, K = shape.kv_heads;
  at::Tensor joined = at::empty({B, T, shape.columns()}, grads.q_BHTD.options());
  const auto put = [&](const at::Tensor& x, int64_t first, int64_t heads) {
    joined.narrow(2, first * D, heads * D).view({B, T, heads, D}).copy_(x.transpose(1, 2));
  };
  const auto shared = [&](const at::Tensor& x) { return shape.heads == K ? x : x.view({B, K, -1, T, D}).sum(2); };
  put(grads.q_BHTD, 0, shape.heads);
  put(shared(grads.k_BHTD), shape.heads, K);
  put(shared(grads.v_BHTD), shape.heads + K, K);
  return joined;
}

// 0 where a place may look, -inf elsewhere: [B or 1, 1, T, T]; undefined if it may look everywhere.
at::Tensor additive_mask(const AttentionInputs& inputs, int64_t T, const at::TensorOptions& options, bool with_causal) {
  at::Tensor hidden;
  if (inputs.segments.defined()) hidden = inputs.segments.unsqueeze(2).ne(inputs.segments.unsqueeze(1)).unsqueeze(1);
  if (with_causal && inputs.causal) {
    const at::Tensor later = at::ones({1, 1, T, T}, at::kBool).triu(1);
    hidden = hidden.defined() ? hidden.logical_or(later) : later;
  }
  if (!hidden.defined()) return {};
  return at::zeros(hidden.sizes(), options).masked_fill(hidden, -std::numeric_limits<double>::infinity());
}

double scale_of(const AttentionShape& shape) {
  return 1 / std::sqrt(static_cast<double>(shape.head_dim));
}

// ATen's tiled kernel: never holds [T, T].
struct Tiled {
  bool is_causal;  // the mask says it otherwise
  std::optional<at::Tensor> mask;

  explicit Tiled(const AttentionInputs& inputs, const at::Tensor& qkv) : is_causal(inputs.causal && !inputs.segments.defined()) {
    const at::Tensor additive = additive_mask(inputs, qkv.size(1), qkv.options(), !is_causal);
    if (additive.defined()) mask = additive;
  }
  std::tuple<at::Tensor, at::Tensor> forward(const Heads& h, double scale) const {
    return at::_scaled_dot_product_flash_attention_for_cpu(h.q_BHTD, h.k_BHTD, h.v_BHTD, 0, is_causal, mask, scale);
  }
  Heads backward(const at::Tensor& grad, const Heads& h, const at::Tensor& out, const at::Tensor& logsumexp, double scale) const {
    auto [dq, dk, dv] = at::_scaled_dot_product_flash_attention_for_cpu_backward(grad, h.q_BHTD, h.k_BHTD, h.v_BHTD, out,
                                                                                 logsumexp, 0, is_causal, mask, scale);
    return {dq, dk, dv};
  }
};

// The weights as a tensor [B, H, T, T]: for dropout on them.
struct Plain {
  const AttentionInputs& inputs;

  at::Tensor dropped(const at::Tensor& x) const { return x * inputs.keep * inputs.keep_scale; }
  // Returns the result and the weights before dropout.
  std::tuple<at::Tensor, at::Tensor> forward(const Heads& h, double scale) const {
    at::Tensor scores = h.q_BHTD.matmul(h.k_BHTD.transpose(2, 3)).mul_(scale);
    const at::Tensor mask = additive_mask(inputs, scores.size(3), scores.options(), true);
    if (mask.defined()) scores.add_(mask);
    const at::Tensor weights = scores.softmax(-1);
    return {dropped(weights).matmul(h.v_BHTD), weights};
  }
  Heads backward(const at::Tensor& grad, const Heads& h, const at::Tensor& weights, double scale) const {
    const at::Tensor dv = dropped(weights).transpose(2, 3).matmul(grad);
    const at::Tensor dweights = dropped(grad.matmul(h.v_BHTD.transpose(2, 3)));
    const at::Tensor dscores = at::_softmax_backward_data(dweights, weights, -1, weights.scalar_type()).mul_(scale);
    return {dscores.matmul(h.k_BHTD), dscores.transpose(2, 3).matmul(h.q_BHTD), dv};
  }
};

struct AttentionFunction : torch::autograd::Function<AttentionFunction> {
  static at::Tensor forward(AutogradContext* node, const at::Tensor& qkv, AttentionInputs inputs) {
    const AttentionShape& shape = inputs.shape;
    const int64_t B = qkv.size(0), T = qkv.size(1);
    if (inputs.angles) rotate_heads(qkv, *inputs.angles, shape.heads + shape.kv_heads, Turn::forward);
    const Heads heads = split_heads(qkv, shape);
    // Tiled: the result and the logsumexp of the scores; plain: the result and the weights.
    const auto [out_BHTD, rest] = inputs.keep.defined() ? Plain{inputs}.forward(heads, scale_of(shape))
                                                        : Tiled(inputs, qkv).forward(heads, scale_of(shape));
    node->save_for_backward({qkv.detach(), out_BHTD, rest});
    keep(node, std::move(inputs));
    return at::_unsafe_view(out_BHTD.transpose(1, 2).contiguous(), {B, T, shape.heads * shape.head_dim});
  }

  static variable_list backward(AutogradContext* node, variable_list grads) {
    const auto& inputs = kept<AttentionInputs>(node);
    const AttentionShape& shape = inputs.shape;
    const auto saved = node->get_saved_variables();
    const at::Tensor &qkv = saved[0], &out = saved[1], &rest = saved[2];
    const Heads heads = split_heads(qkv, shape);
    const at::Tensor grad = grads[0].contiguous().view({qkv.size(0), qkv.size(1), shape.heads, shape.head_dim}).transpose(1, 2);
    const Heads parts = inputs.keep.defined() ? Plain{inputs}.backward(grad, heads, rest, scale_of(shape))
                                              : Tiled(inputs, qkv).backward(grad, heads, out, rest, scale_of(shape));
    const at::Tensor joined = join_heads(parts, shape);
    if (inputs.angles) rotate_heads(joined, *inputs.angles, shape.heads + shape.kv_heads, Turn::back);
    return {joined, {}};
  }
};

}  // namespace

at::Tensor attention_core(const at::Tensor& qkv, AttentionInputs inputs) {
  if (qkv.numel() == 0) return qkv.narrow(2, 0, inputs.shape.heads * inputs.shape.head_dim);
  return AttentionFunction::apply(qkv, std::move(inputs));
}

}  // namespace zt::nn
