#include "mlp.h"

#include "layers.h"
#include "part.h"
#include "parts/function.h"
#include "tiled_mlp.h"
#include "zt/base/options.h"
#include "zt/base/rows.h"
#include "zt/base/tensor.h"

namespace zt::nn {

namespace {

// The state of the backward, apart from the saved input and the saved input of the activation.
struct MlpState {
  Activation activation;
  AffineValues up, down;
  AffineGradient up_gradient, down_gradient;
  InputRows input;
  Crossing leave;
  bool has_residual;
  size_t parameters;  // their number
};

struct MlpFunction : torch::autograd::Function<MlpFunction> {
  // `parameters` are arguments only to tell autograd that the result depends on them.
  static at::Tensor forward(AutogradContext* node, const at::Tensor& given, const std::optional<at::Tensor>& residual,
                            at::TensorList /*parameters*/, MlpState state) {
    const at::Tensor x = given.contiguous(), more = residual ? as_rows(*residual) : at::Tensor();
    const Crossing& enter = state.input.enter();
    const at::Tensor pre = at::empty({enter.rows(x), state.up.weight.size(0)}, x.options());
    const LoraPass lora_up(state.up.lora), lora_down(state.down.lora);
    const auto up = [&](const at::Tensor& piece, int64_t first) {
      const at::Tensor rows = as_rows(piece), of_piece = rows_of(pre, first, rows.size(0));
      write_affine_rows(of_piece, rows, state.up.weight, {});
      lora_up.add(of_piece, rows, first);
      return in_shape_of(piece, activate(state.activation, of_piece, state.up.bias));
    };
    const auto down = [&](const at::Tensor& piece, int64_t first) {
      const at::Tensor rows = as_rows(piece), beside = more.defined() ? rows_of(more, first, rows.size(0)) : more;
      const at::Tensor out = affine_rows(rows, state.down.weight, state.down.bias, beside);
      lora_down.add(out, rows, first);
      return in_shape_of(piece, out);
    };
    // Only what moves beside computation is cut into pieces: matmuls of fewer rows take longer.
    const auto both = [&](const at::Tensor& piece, int64_t first) { return down(up(piece, first), first); };
    const auto pieces = enter.overlaps_to_parts() ? cross(x, enter, state.leave, both)
                                                  : cross(up(enter.to_parts(x).wait(), 0), {}, state.leave, down);
    node->save_for_backward({state.input.saved(x), pre});
    keep(node, std::move(state));
    return joined_pieces(pieces, x);
  }

  static variable_list backward(AutogradContext* node, variable_list grads) {
    auto& state = kept<MlpState>(node);
    const auto saved = node->get_saved_variables();
    state.input.begin_again(saved[0]);
    at::Tensor of_value = at::empty({saved[1].size(0), state.down.weight.size(1)}, grads[0].options());
    std::vector<at::Tensor> dy;
    std::optional<LoraPass> lora(state.down.lora);
    cross(grads[0], state.leave, {}, [&](const at::Tensor& piece, int64_t first) {
      const at::Tensor& rows = dy.emplace_back(as_rows(piece));
      const at::Tensor of_rows = rows_of(of_value, first, rows.size(0));
      write_affine_input_gradient(of_rows, rows, state.down.weight);
      lora->add_input_gradient(of_rows, rows, first);
      return piece;
    });
    lora.emplace(state.up.lora);
    const ActivationGradient inner = activate_backward(state.activation, std::move(of_value), saved[1], state.up.bias);
    state.down_gradient.add(state.leave.gathers() ? joined_rows(dy) : as_rows(grads[0]), inner.value);
    const Crossing& enter = state.input.enter();
    MoveResult dx;
    const bool needs_dx = node->needs_input_grad(0);
    const at::Tensor of_rows = needs_dx ? affine_input_gradient(inner.pre, state.up.weight) : at::Tensor();
    lora->add_input_gradient(of_rows, inner.pre);
    if (needs_dx) dx = enter.to_stream(enter.shaped(of_rows, grads[0]));
    lora.reset();
    state.up_gradient.add(inner.pre, state.input.again());
    variable_list results{dx.wait(), state.has_residual ? grads[0] : at::Tensor()};
    results.resize(2 + state.parameters + 1);
    return results;
  }
};

}  // namespace

Mlp::Mlp(const MlpOptions& options, const std::string& prefix, const std::string& path)
    : activation_(options.activation), tensor_(options, path), tile_(options.tile) {
  const Bias bias = options.bias ? Bias::yes : Bias::no;
  up_ = make_affine(prefix + "up.", options.hidden, columns_before(activation_, options.ffn), bias, init_normal(0, options.std));
  down_ = make_affine(prefix + "down.", options.ffn, options.hidden, bias, init_normal(0, options.residual_std));
  const int64_t columns = up_.weight->shape[0];
  const auto halves = static_cast<size_t>(columns / options.ffn);
  if (options.lora && halves == 1 && (options.lora->has_target("gate") || options.lora->has_target("up_proj")))
    misuse("{}.lora.targets: only an MLP with swiglu has the parts 'gate' and 'up_proj': name 'up'", path);
  up_.lora =
      make_lora(*up_.weight, prefix + "up.", options.lora,
                {{"gate", 0, options.ffn}, {"up_proj", columns - options.ffn, options.ffn}, {"up", 0, columns}}, LoraInput::up);
  down_.lora = make_lora(*down_.weight, prefix + "down.", options.lora, {{"down", 0, options.hidden}}, LoraInput::down);
  tensor_.check_enough(options.ffn, "inner columns", path);
  tensor_.cut_rows(up_, std::vector<CutGroup>(halves, {options.ffn, 1}));
  tensor_.cut_columns(down_, {{options.ffn, 1}});
  if (down_.bias) tensor_.sum_over_stream({down_.bias});
}

at::Tensor Mlp::run(const MatmulInput& input, Context& context, const at::Tensor& residual) const {
  const int64_t hidden = up_.weight->shape[1];
  const at::Tensor& x = input.value;
  if (x.dim() < 1 || x.size(-1) != hidden) misuse("'{}' takes [..., {}], got {}", up_.weight->name, hidden, describe(x));
  const bool is_cut = tensor_.is_cut();
  const Affine down = is_cut ? down_.without_bias() : down_;  // if cut, the bias and the residual are added to the sum
  const at::Tensor added = is_cut ? at::Tensor() : residual;
  const MatmulInput in = input.to(dtype_for(*up_.weight, x, context));
  const auto with_bias = [&](const at::Tensor& out) { return is_cut ? add_bias(out, down_.bias, context, residual) : out; };
  if (tile_ > 0) {
    const at::Tensor out = tiled_mlp(in, tensor_.crossing(x, context), added, up_, down, activation_, tile_, context);
    return with_bias(tensor_.leave(out, context));
  }
  variable_list parameters = up_.parameters(context);
  for (const at::Tensor& leaf : down.parameters(context)) parameters.push_back(leaf);
  const Crossing enter = tensor_.crossing(x, context);
  const AffineValues up = up_.values(context, x, enter), of_down = down.values(context, x, enter);
  MlpState state{activation_,
                 up,
                 of_down,
                 AffineGradient(up_, up, context),
                 AffineGradient(down, of_down, context),
                 InputRows(in, enter, up.needs_input()),
                 tensor_.crossing(x, context),
                 added.defined(),
                 parameters.size()};
  return with_bias(run_function<MlpFunction>(in.value, maybe(added), at::TensorList(parameters), std::move(state)));
}

std::shared_ptr<Layer> make_mlp(const Value& value) {
  static const auto kSchema =
      tensor_options(mlp_options(Schema<MlpOptions>("nn.mlp")))
          .optional("tile", &MlpOptions::tile, "rows whose columns inside exist at the same time; 0: all", at_least(0))
          .optional("lora", &MlpOptions::lora, "adapters of the matrices, which are frozen");
  return kSchema.make(value, [](const MlpOptions& options) {
    return make_with_lora(options, kSchema.name(), kMlpTargets, {"up", "down"},
                          [](const auto& o) { return layer_of("mlp", Mlp(o, "", kSchema.name())); });
  });
}

}  // namespace zt::nn
