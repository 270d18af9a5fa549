#include "norm.h"

#include "parts/function.h"
#include "zt/base/options.h"
#include "zt/base/rows.h"

namespace zt::nn {

namespace {

struct NormState {
  NormKind kind;
  double eps;
  at::Tensor weight;
  Context::SinkFn weight_sink, bias_sink;  // bias_sink is empty if there is no bias
};

// Returns the norm of the rows and the statistics for the backward.
std::pair<at::Tensor, at::Tensor> norm_of(const at::Tensor& rows, const at::Tensor& weight, const at::Tensor& bias, NormKind kind,
                                          double eps) {
  const at::Tensor out = at::empty(rows.sizes(), rows.options());
  const at::Tensor stats = norm_rows(out, rows, whole_rows(rows), kind, weight, bias, eps);
  return {out, stats};
}

struct NormFunction : torch::autograd::Function<NormFunction> {
  // Returns {the norm, x}. `weight`, which is that of the state, and `bias` are arguments also to tell autograd that the result
  // depends on them.
  static variable_list forward(AutogradContext* node, const at::Tensor& x, const at::Tensor& weight,
                               const std::optional<at::Tensor>& bias, NormState state) {
    const at::Tensor rows = as_rows(x);
    const auto [out, stats] = norm_of(rows, weight, value_or_none(bias), state.kind, state.eps);
    node->save_for_backward({rows, stats});
    node->set_materialize_grads(false);
    keep(node, std::move(state));
    return {in_shape_of(x, out), x};
  }

  static variable_list backward(AutogradContext* node, variable_list grads) {
    if (!grads[0].defined()) return {grads[1], {}, {}, {}};
    const auto& state = kept<NormState>(node);
    const auto saved = node->get_saved_variables();
    const at::Tensor& x = saved[0];
    const at::Tensor dx = at::empty_like(x);
    const at::Tensor beside = grads[1].defined() ? as_rows(grads[1]) : at::Tensor();
    const NormBackwardInputs in{as_rows(grads[0]), x, whole_rows(x), state.weight, saved[1], beside};
    norm_rows_backward(dx, in, state.weight_sink(), state.bias_sink ? state.bias_sink() : Context::Sink{});
    return {in_shape_of(grads[0], dx), {}, {}, {}};
  }
};

}  // namespace

Norm::Norm(NormKind kind, int64_t hidden, double eps, bool bias, const std::string& prefix) : kind_(kind), eps_(eps) {
  if (kind != NormKind::none) weight_ = make_vector(prefix + "weight", hidden, init_ones(), "hidden");
  if (kind == NormKind::layernorm && bias) bias_ = make_vector(prefix + "bias", hidden, init_zeros(), "hidden");
}

at::Tensor Norm::run(const at::Tensor& x, Context& context) const {
  return fork(x, context).normed.value;
}

Norm::Fork Norm::fork(const at::Tensor& given, Context& context, LayerRecompute recompute) const {
  if (kind_ == NormKind::none) return {given, given};
  if (given.dim() < 1 || given.size(-1) != weight_->shape[0]) {
    misuse("'{}' takes [..., {}], got {}", weight_->name, weight_->shape[0], describe(given));
  }
  const at::Tensor& weight = context.param(*weight_);
  const at::Tensor bias = bias_ ? context.param(*bias_) : at::Tensor(), x = in_dtype_of(*weight_, given, context);
  NormState state{kind_, eps_, weight, context.grad_sink(*weight_), bias_ ? context.grad_sink(*bias_) : Context::SinkFn()};
  const variable_list both = run_function<NormFunction>(x, weight, maybe(bias), std::move(state));
  if (recompute == LayerRecompute::none) return {both[0], both[1]};
  const auto again = [x = x.detach(), weight, bias, kind = kind_, eps = eps_] {
    const at::NoGradGuard no_grad;
    return in_shape_of(x, norm_of(as_rows(x), weight, bias, kind, eps).first);
  };
  return {{both[0], again}, both[1]};
}

Params Norm::params() const {
  Params all;
  if (weight_) all.push_back(weight_);
  if (bias_) all.push_back(bias_);
  return all;
}

}  // namespace zt::nn
