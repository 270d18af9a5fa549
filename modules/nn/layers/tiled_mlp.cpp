#include "tiled_mlp.h"

#include "parts/function.h"
#include "parts/tiles.h"
#include "zt/base/rows.h"

namespace zt::nn {

namespace {

struct TiledMlpState {
  Activation activation;
  AffineValues up, down;
  AffineSinks up_sinks, down_sinks;
  InputRows input;
  int64_t tile;
  bool has_residual;
  size_t parameters;  // their number
};

struct TiledMlpFunction : torch::autograd::Function<TiledMlpFunction> {
  // `parameters` are arguments only to tell autograd that the result depends on them.
  static at::Tensor forward(AutogradContext* node, const at::Tensor& x, const std::optional<at::Tensor>& residual,
                            at::TensorList /*parameters*/, TiledMlpState state) {
    const at::Tensor all = state.input.enter().to_parts(x).wait();
    const at::Tensor rows = as_rows(all), added = residual ? as_rows(*residual) : at::Tensor();
    const at::Tensor out = at::empty({rows.size(0), state.down.weight.size(0)}, rows.options());
    const LoraPass lora_up(state.up.lora), lora_down(state.down.lora);
    for_tiles(rows.size(0), state.tile, [&](int64_t first, int64_t count) {
      const auto of_tile = [&](const at::Tensor& all) { return all.defined() ? all.narrow(0, first, count) : all; };
      const at::Tensor pre = affine_rows(of_tile(rows), state.up.weight, {});
      lora_up.add(pre, of_tile(rows), first);
      const at::Tensor value = activate(state.activation, pre, state.up.bias);
      write_affine_rows(of_tile(out), value, state.down.weight, state.down.bias, of_tile(added));
      lora_down.add(of_tile(out), value, first);
    });
    node->save_for_backward({state.input.saved(x)});
    keep(node, std::move(state));
    return in_shape_of(all, out);
  }

  static variable_list backward(AutogradContext* node, variable_list grads) {
    auto& state = kept<TiledMlpState>(node);
    state.input.begin_again(node->get_saved_variables()[0]);
    const at::Tensor rows = state.input.again(), dy = as_rows(grads[0]);
    at::Tensor dx;
    if (node->needs_input_grad(0)) dx = at::empty_like(rows);
    TileGradient up(state.up_sinks, rows.scalar_type()), down(state.down_sinks, rows.scalar_type());
    const LoraPass lora_up(state.up.lora), lora_down(state.down.lora);
    for_tiles(rows.size(0), state.tile, [&](int64_t first, int64_t count) {
      const at::Tensor x = rows.narrow(0, first, count), dy_of_tile = dy.narrow(0, first, count);
      const at::Tensor pre = affine_rows(x, state.up.weight, {});
      lora_up.add(pre, x, first);
      at::Tensor of_value = affine_input_gradient(dy_of_tile, state.down.weight);
      lora_down.add_input_gradient(of_value, dy_of_tile, first);
      const ActivationGradient inner = activate_backward(state.activation, std::move(of_value), pre, state.up.bias);
      down.add(dy_of_tile, inner.value, lora_down, first);
      const at::Tensor dx_of_tile = dx.defined() ? dx.narrow(0, first, count) : dx;
      if (dx.defined()) write_affine_input_gradient(dx_of_tile, inner.pre, state.up.weight);
      lora_up.add_input_gradient(dx_of_tile, inner.pre, first);
      up.add(inner.pre, x, lora_up, first);
    });
    down.finish();
    up.finish();
    if (dx.defined()) dx = state.input.enter().to_stream(in_shape_of(grads[0], dx)).wait();
    variable_list results{dx, state.has_residual ? grads[0] : at::Tensor()};
    results.resize(2 + state.parameters + 1);
    return results;
  }
};

}  // namespace

at::Tensor tiled_mlp(const MatmulInput& x, Crossing enter, const at::Tensor& residual, const Affine& up, const Affine& down,
                     Activation activation, int64_t tile, Context& context) {
  variable_list parameters = up.parameters(context);
  for (const at::Tensor& leaf : down.parameters(context)) parameters.push_back(leaf);
  const AffineValues of_up = up.values(context, x.value, enter), of_down = down.values(context, x.value, enter);
  TiledMlpState state{activation,
                      of_up,
                      of_down,
                      AffineSinks(up, of_up, context),
                      AffineSinks(down, of_down, context),
                      InputRows(x, std::move(enter)),
                      tile,
                      residual.defined(),
                      parameters.size()};
  return run_function<TiledMlpFunction>(x.value, maybe(residual), at::TensorList(parameters), std::move(state));
}

}  // namespace zt::nn
