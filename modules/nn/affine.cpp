#include "affine.h"

#include "function.h"
#include "zt/error.h"
#include "zt/tensor.h"

namespace zt::nn {

Affine make_affine(const std::string& prefix, int64_t in, int64_t out, Bias bias, InitFn init) {
  Affine affine;
  affine.weight = make_param(prefix + "weight", {out, in}, std::move(init), true);
  if (bias == Bias::yes) affine.bias = make_vector(prefix + "bias", out, init_zeros());
  return affine;
}

namespace {

// A sink of another dtype (fp32 for a bf16 product) is added to; of the same dtype the GEMM writes into it.
void add_product(const Context::Sink& sink, const at::Tensor& dy, const at::Tensor& x) {
  if (!sink.view.defined()) return;
  at::Tensor view = sink.view;
  if (view.scalar_type() == dy.scalar_type()) {
    view.addmm_(dy.t(), x, sink.first ? 0 : 1, 1);
  } else if (sink.first) {
    view.copy_(dy.t().mm(x));
  } else {
    view.add_(dy.t().mm(x));
  }
}

void add_column_sums(const Context::Sink& sink, const at::Tensor& dy) {
  if (!sink.view.defined()) return;
  at::Tensor view = sink.view;
  if (sink.first) at::sum_out(view, dy, {0}, false, view.scalar_type());
  else view.add_(dy.sum({0}, false, view.scalar_type()));
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
    if (node->needs_input_grad(0)) dx = in_shape_of(grads[0], dy.mm(state.affine.weight->get()));
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
    add_product(weight(), dy, x);
    if (bias) add_column_sums(bias(), dy);
  });
}

at::Tensor affine_rows(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias, const at::Tensor& residual) {
  if (!residual.defined()) return bias.defined() ? at::addmm(bias, x, weight.t()) : x.mm(weight.t());
  // The sum of residual and bias is where the GEMM accumulates: no pass of its own for either.
  at::Tensor sum = bias.defined() ? residual + bias : residual.clone();
  return sum.addmm_(x, weight.t());
}

at::Tensor linear(const at::Tensor& x, const Affine& affine, Context& context, const at::Tensor& residual) {
  const int64_t in = affine.weight->shape[1];
  if (x.dim() < 1 || x.size(-1) != in) misuse("'{}' takes [..., {}], got {}", affine.weight->name, in, describe(x));
  return LinearFunction::apply(x, affine.weight->get(), maybe(affine.bias_value()), maybe(residual),
                               LinearState{affine, AffineGradient(affine, context), residual.defined()});
}

}  // namespace zt::nn
