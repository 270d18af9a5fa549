#include "affine.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>

#include "function.h"
#include "zt/base/error.h"
#include "zt/base/rows.h"
#include "zt/base/tensor.h"
#include "zt/gemm/gemm.h"

namespace zt::nn {

Affine make_affine(const std::string& prefix, int64_t in, int64_t out, Bias bias, InitFn init) {
  Affine affine;
  affine.weight = make_param(prefix + "weight", {out, in}, std::move(init), true, {"out", "in"});
  affine.weight->packing = Packing::any;
  if (bias == Bias::yes) affine.bias = make_vector(prefix + "bias", out, init_zeros(), "out");
  return affine;
}

// On the CPU, LibTorch would first copy all 16-bit rows to 32 bits. It sums each column by itself, so the sums of a part of the
// columns have the same bits. On device meta one part shows what is allocated.
at::Tensor column_sums(const at::Tensor& dy) {
  constexpr int64_t kColumns = 64;
  const at::ScalarType dtype = wide_dtype(dy.scalar_type());
  if (dtype == dy.scalar_type() || dy.is_cuda()) return dy.sum({0}, false, dtype);
  const at::Tensor sums = at::empty({dy.size(1)}, dy.options().dtype(dtype));
  for (int64_t column = 0; column < (dy.is_meta() ? std::min(kColumns, dy.size(1)) : dy.size(1)); column += kColumns) {
    const int64_t columns = std::min(kColumns, dy.size(1) - column);
    sums.narrow(0, column, columns).copy_(dy.narrow(1, column, columns).to(dtype).sum(0));
  }
  return sums;
}

namespace {

// Returns whether adding the gradient of `dy` changes nothing. Without rows it is zero, which a sink without a sum yet must get.
bool is_without_effect(const Context::Sink& sink, const at::Tensor& dy) {
  return !sink.view.defined() || (dy.size(0) == 0 && !sink.first);
}

void add_column_sums(const Context::Sink& sink, const at::Tensor& dy) {
  if (!is_without_effect(sink, dy)) sink.add(column_sums(dy));
}

// Returns the sink of one group's slice of a parameter.
Context::Sink slice_of(const Context::Sink& sink, int64_t group) {
  return {sink.view.defined() ? sink.view.select(0, group) : at::Tensor(), sink.first};
}

struct LinearState {
  AffineValues values;
  AffineGradient gradient;
  InputRows input;
  Crossing leave;
  bool has_residual;
  size_t parameters;  // their number
};

struct LinearFunction : torch::autograd::Function<LinearFunction> {
  // `parameters` are arguments only to tell autograd that the result depends on them.
  static at::Tensor forward(AutogradContext* node, const at::Tensor& given, const std::optional<at::Tensor>& residual,
                            at::TensorList /*parameters*/, LinearState state) {
    const at::Tensor x = given.contiguous();
    const at::Tensor more = residual ? as_rows(*residual) : at::Tensor();
    const LoraPass lora(state.values.lora);
    const auto pieces = cross(x, state.input.enter(), state.leave, [&](const at::Tensor& piece, int64_t first) {
      const at::Tensor rows = as_rows(piece);
      const at::Tensor beside = more.defined() ? rows_of(more, first, rows.size(0)) : more;
      const at::Tensor out = affine_rows(rows, state.values.weight, state.values.bias, beside);
      lora.add(out, rows, first);
      return in_shape_of(piece, out);
    });
    node->save_for_backward({state.input.saved(x)});
    keep(node, std::move(state));
    return joined_pieces(pieces, x);
  }

  static variable_list backward(AutogradContext* node, variable_list grads) {
    auto& state = kept<LinearState>(node);
    const bool needs_dx = node->needs_input_grad(0);
    state.input.begin_again(node->get_saved_variables()[0]);
    const int64_t rows_of_parts = state.leave.rows(grads[0]);
    const at::Tensor& weight = state.values.weight;
    const at::Tensor of_rows = needs_dx ? at::empty({rows_of_parts, weight.size(1)}, grads[0].options()) : at::Tensor();
    std::vector<at::Tensor> dy;
    std::optional<LoraPass> lora(state.values.lora);
    cross(grads[0], state.leave, {}, [&](const at::Tensor& piece, int64_t first) {
      const at::Tensor& rows = dy.emplace_back(as_rows(piece));
      const at::Tensor dx = needs_dx ? rows_of(of_rows, first, rows.size(0)) : at::Tensor();
      if (needs_dx) write_affine_input_gradient(dx, rows, weight);
      lora->add_input_gradient(dx, rows, first);
      return piece;
    });
    lora.reset();
    MoveResult dx;  // on its way beside the gradient of the weight
    if (needs_dx) dx = state.input.enter().to_stream(state.leave.shaped(of_rows, grads[0]));
    state.gradient.add(state.leave.gathers() ? joined_rows(dy) : as_rows(grads[0]), state.input.again());
    variable_list results{dx.wait(), state.has_residual ? grads[0] : at::Tensor()};
    results.resize(2 + state.parameters + 1);
    return results;
  }
};

struct BiasState {
  Context* context;
  Context::SinkFn sink;
  bool has_residual;
};

struct BiasFunction : torch::autograd::Function<BiasFunction> {
  static at::Tensor forward(AutogradContext* node, const at::Tensor& x, const at::Tensor& bias,
                            const std::optional<at::Tensor>& residual, BiasState state) {
    keep(node, std::move(state));
    return x + (residual ? *residual + bias : bias);  // as write_affine_rows: onto the rounded sum of the two
  }

  static variable_list backward(AutogradContext* node, variable_list grads) {
    const auto& state = kept<BiasState>(node);
    state.context->defer([sink = state.sink, dy = as_rows(grads[0])] {
      const at::NoGradGuard no_grad;
      add_column_sums(sink(), dy);
    });
    return {grads[0], {}, state.has_residual ? grads[0] : at::Tensor(), {}};
  }
};

struct GroupBiasState {
  Context* context;
  Context::SinkFn sink;
  std::vector<int64_t> counts;
};

struct GroupBiasFunction : torch::autograd::Function<GroupBiasFunction> {
  static at::Tensor forward(AutogradContext* node, const at::Tensor& x, const at::Tensor& bias, GroupBiasState state) {
    const at::Tensor out = at::empty_like(x);
    const std::vector<at::Tensor> rows = x.split_with_sizes(state.counts);
    std::vector<at::Tensor> to = out.split_with_sizes(state.counts);
    for (size_t group = 0; group < to.size(); ++group)
      at::add_out(to[group], rows[group], bias.select(0, static_cast<int64_t>(group)));
    keep(node, std::move(state));
    return out;
  }

  static variable_list backward(AutogradContext* node, variable_list grads) {
    const auto& state = kept<GroupBiasState>(node);
    state.context->defer([sink = state.sink, counts = state.counts, dy = grads[0]] {
      const at::NoGradGuard no_grad;
      const Context::Sink biases = sink();
      const std::vector<at::Tensor> rows = dy.split_with_sizes(counts);
      for (size_t group = 0; group < rows.size(); ++group)
        add_column_sums(slice_of(biases, static_cast<int64_t>(group)), rows[group]);
    });
    return {grads[0], {}, {}};
  }
};

}  // namespace

AffineValues Affine::values(Context& context, const at::Tensor& x, const Crossing& enter) const {
  AffineValues values{context.param(*weight), bias ? context.param(*bias) : at::Tensor()};
  if (!lora.is_empty() && context.adapters) values.lora = std::make_shared<LoraValues>(lora, *weight, context, x, enter);
  return values;
}

std::vector<at::Tensor> Affine::parameters(Context& context) const {
  std::vector<at::Tensor> leaves;
  if (!at::GradMode::is_enabled()) return leaves;
  for (const auto& param : params()) leaves.push_back(context.param(*param));
  return leaves;
}

void add_weight_gradient(const Context::Sink& sink, const at::Tensor& dy, const at::Tensor& x, double alpha) {
  if (is_without_effect(sink, dy)) return;
  const at::ScalarType dtype = sink.view.scalar_type(), of_sums = wide_dtype(dy.scalar_type());
  if (dtype == dy.scalar_type() || dtype == of_sums) {
    return gemm(GemmKind::weight_gradient, dy.t(), x, sink.view, sink.first ? 0 : 1, alpha);
  }
  const at::Tensor sum = at::empty(sink.view.sizes(), dy.options().dtype(of_sums));
  gemm(GemmKind::weight_gradient, dy.t(), x, sum, 0, alpha);
  sink.add(sum);
}

AffineGradient::AffineGradient(const Affine& affine, const AffineValues& values, Context& context)
    : context_(&context), weight_(context.grad_sink(*affine.weight)), lora_(values.lora) {
  if (affine.bias) bias_ = context.grad_sink(*affine.bias);
}

void AffineGradient::add(at::Tensor dy, at::Tensor x) const {
  context_->defer([weight = weight_, bias = bias_, lora = lora_, dy = std::move(dy), x = std::move(x)] {
    const at::NoGradGuard no_grad;
    add_weight_gradient(weight(), dy, x);
    if (bias) add_column_sums(bias(), dy);
    if (!lora) return;
    const auto add = [&](size_t i, const at::Tensor& of_result, const at::Tensor& in, double alpha) {
      add_weight_gradient(lora->sinks()[i](), of_result, in, alpha);
    };
    LoraPass(lora).for_gradients(dy, x, 0, add);
  });
}

void AffineGradient::add_groups(std::vector<at::Tensor> dy, std::vector<at::Tensor> x) const {
  context_->defer([weight = weight_, bias = bias_, dy = std::move(dy), x = std::move(x)] {
    const at::NoGradGuard no_grad;
    const Context::Sink weights = weight(), biases = bias ? bias() : Context::Sink{};
    for (size_t group = 0; group < dy.size(); ++group) {
      add_weight_gradient(slice_of(weights, static_cast<int64_t>(group)), dy[group], x[group]);
      add_column_sums(slice_of(biases, static_cast<int64_t>(group)), dy[group]);
    }
  });
}

void write_affine_rows(const at::Tensor& out, const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                       const at::Tensor& residual) {
  if (const PackedMatrix* packed = packed_matrix(weight))
    return packed_gemm(x, *packed, out, packed->spec.activations, {bias, residual});
  at::Tensor to = out;
  if (x.is_cuda() && bias.defined() && !residual.defined()) {
    at::addmm_out(to, bias, x, weight.t());  // cuBLAS adds the bias when it writes the result
    return;
  }
  // The GEMM accumulates onto residual + bias, so adding them takes no extra pass over the result.
  if (residual.defined() && bias.defined()) at::add_out(to, residual, bias);
  else if (residual.defined()) to.copy_(residual);
  else if (bias.defined()) to.copy_(bias);
  gemm(GemmKind::forward, x, weight.t(), to, residual.defined() || bias.defined() ? 1 : 0);
}

at::Tensor affine_rows(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias, const at::Tensor& residual) {
  const at::Tensor out = at::empty({x.size(0), weight.size(0)}, x.options());
  write_affine_rows(out, x, weight, bias, residual);
  return out;
}

at::Tensor affine_input_gradient(const at::Tensor& dy, const at::Tensor& weight) {
  const at::Tensor dx = at::empty({dy.size(0), weight.size(1)}, dy.options());
  write_affine_input_gradient(dx, dy, weight);
  return dx;
}

void write_affine_input_gradient(const at::Tensor& dx, const at::Tensor& dy, const at::Tensor& weight) {
  if (const PackedMatrix* packed = packed_matrix(weight)) return packed_gemm_transposed(dy, *packed, dx);
  gemm(GemmKind::input_gradient, dy, weight, dx);
}

at::Tensor linear(const MatmulInput& input, const Affine& affine, Context& context, const at::Tensor& residual, Crossing enter,
                  Crossing leave) {
  const at::Tensor& x = input.value;
  const AffineValues values = affine.values(context, x, enter);
  const at::Tensor& weight = values.weight;
  if (x.dim() < 1 || x.size(-1) != weight.size(1)) {
    misuse("'{}' takes [..., {}], got {}", affine.weight->name, weight.size(1), describe(x));
  }
  if (!x.is_floating_point())
    misuse("'{}' multiplies floating-point values, got {}: convert them", affine.weight->name, describe(x));
  const MatmulInput converted = input.to(weight.scalar_type());
  const at::Tensor more = residual.defined() ? in_dtype(weight.scalar_type(), residual) : residual;
  const variable_list parameters = affine.parameters(context);
  LinearState state{values,
                    AffineGradient(affine, values, context),
                    InputRows(converted, std::move(enter), values.needs_input()),
                    std::move(leave),
                    residual.defined(),
                    parameters.size()};
  return run_function<LinearFunction>(converted.value, maybe(more), at::TensorList(parameters), std::move(state));
}

at::Tensor add_bias(const at::Tensor& x, const std::shared_ptr<Param>& bias, Context& context, const at::Tensor& residual) {
  const at::Tensor more = residual.defined() ? in_dtype(x.scalar_type(), residual) : residual;
  if (!bias) return more.defined() ? x + more : x;
  return run_function<BiasFunction>(x, context.param(*bias), maybe(more),
                                    BiasState{&context, context.grad_sink(*bias), more.defined()});
}

at::Tensor add_group_bias(const at::Tensor& x, const std::shared_ptr<Param>& bias, std::vector<int64_t> counts,
                          Context& context) {
  if (!bias) return x;
  return run_function<GroupBiasFunction>(x, context.param(*bias),
                                         GroupBiasState{&context, context.grad_sink(*bias), std::move(counts)});
}

}  // namespace zt::nn
