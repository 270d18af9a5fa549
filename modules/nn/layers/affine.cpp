#include "affine.h"

#include <ATen/core/grad_mode.h>

#include "function.h"
#include "zt/base/error.h"
#include "zt/base/tensor.h"
#include "zt/gemm/gemm.h"

namespace zt::nn {

Affine make_affine(const std::string& prefix, int64_t in, int64_t out, Bias bias, InitFn init) {
  Affine affine;
  affine.weight = make_param(prefix + "weight", {out, in}, std::move(init), true, {"out", "in"});
  if (bias == Bias::yes) affine.bias = make_vector(prefix + "bias", out, init_zeros(), "out");
  return affine;
}

namespace {

// Returns the dtype of sums over rows.
at::ScalarType sum_dtype(const at::Tensor& dy) {
  return dy.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
}

void add_gemm(const Context::Sink& sink, const at::Tensor& dy, const at::Tensor& x) {
  if (!sink.view.defined()) return;
  const at::ScalarType dtype = sink.view.scalar_type();
  if (dtype == dy.scalar_type() || dtype == sum_dtype(dy)) {
    return gemm(GemmKind::weight_gradient, dy.t(), x, sink.view, sink.first ? 0 : 1);
  }
  const at::Tensor sum = at::empty(sink.view.sizes(), dy.options().dtype(sum_dtype(dy)));
  gemm(GemmKind::weight_gradient, dy.t(), x, sum);
  sink.add(sum);
}

void add_column_sums(const Context::Sink& sink, const at::Tensor& dy) {
  if (sink.view.defined()) sink.add(dy.sum({0}, false, sum_dtype(dy)));
}

struct LinearState {
  Affine affine;
  AffineGradient gradient;
  bool has_residual;
};

struct LinearFunction : torch::autograd::Function<LinearFunction> {
  static at::Tensor forward(AutogradContext* node, const at::Tensor& x, const at::Tensor& weight,
                            const std::optional<at::Tensor>& bias, const std::optional<at::Tensor>& residual, LinearState state) {
    const at::Tensor rows = as_rows(x);
    node->save_for_backward({rows});
    keep(node, std::move(state));
    return in_shape_of(x, affine_rows(rows, weight, value_or_none(bias), residual ? as_rows(*residual) : at::Tensor()));
  }

  static variable_list backward(AutogradContext* node, variable_list grads) {
    const auto& state = kept<LinearState>(node);
    const at::Tensor dy = as_rows(grads[0]);
    at::Tensor dx;
    if (node->needs_input_grad(0)) dx = in_shape_of(grads[0], affine_input_gradient(dy, state.affine.weight->get()));
    state.gradient.add(dy, node->get_saved_variables()[0]);
    return {dx, {}, {}, state.has_residual ? grads[0] : at::Tensor(), {}};
  }
};

}  // namespace

AffineGradient::AffineGradient(const Affine& affine, Context& context)
    : context_(&context), weight_(context.grad_sink(*affine.weight)) {
  if (affine.bias) bias_ = context.grad_sink(*affine.bias);
}

void AffineGradient::add(at::Tensor dy, at::Tensor x) const {
  context_->defer([weight = weight_, bias = bias_, dy = std::move(dy), x = std::move(x)] {
    const at::NoGradGuard no_grad;
    add_gemm(weight(), dy, x);
    if (bias) add_column_sums(bias(), dy);
  });
}

at::Tensor affine_rows(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias, const at::Tensor& residual) {
  // cuBLAS adds the bias when it writes the result.
  if (x.is_cuda() && bias.defined() && !residual.defined()) return at::addmm(bias, x, weight.t());
  // The GEMM accumulates onto residual + bias, so adding them takes no extra pass over the result.
  at::Tensor out;
  if (residual.defined()) out = bias.defined() ? residual + bias : residual.clone();
  else if (bias.defined()) out = bias.repeat({x.size(0), 1});
  const double beta = out.defined() ? 1 : 0;
  if (!out.defined()) out = at::empty({x.size(0), weight.size(0)}, x.options());
  gemm(GemmKind::forward, x, weight.t(), out, beta);
  return out;
}

at::Tensor affine_input_gradient(const at::Tensor& dy, const at::Tensor& weight) {
  const at::Tensor dx = at::empty({dy.size(0), weight.size(1)}, dy.options());
  gemm(GemmKind::input_gradient, dy, weight, dx);
  return dx;
}

at::Tensor linear(const at::Tensor& x, const Affine& affine, Context& context, const at::Tensor& residual) {
  const at::Tensor& weight = affine.weight->get();
  if (x.dim() < 1 || x.size(-1) != weight.size(1)) {
    misuse("'{}' takes [..., {}], got {}", affine.weight->name, weight.size(1), describe(x));
  }
  if (!x.is_floating_point())
    misuse("'{}' multiplies floating-point values, got {}: convert them", affine.weight->name, describe(x));
  const auto converted = [&](const at::Tensor& t) { return t.defined() ? t.to(weight.scalar_type()) : t; };
  return LinearFunction::apply(converted(x), weight, maybe(affine.bias_value()), maybe(converted(residual)),
                               LinearState{affine, AffineGradient(affine, context), residual.defined()});
}

}  // namespace zt::nn
