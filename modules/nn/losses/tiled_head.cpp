#include "tiled_head.h"

#include "parts/function.h"
#include "parts/tiles.h"
#include "zt/base/rows.h"

namespace zt::nn {

namespace {

struct TiledHeadState {
  AffineValues head;
  AffineSinks sinks;
  InputRows input;
  SoftmaxLoss loss;
  int64_t tile;
  size_t parameters;  // their number

  // Calls body(rows of h, their logits, first row, adapters) for each tile. The logits are in one buffer.
  template <class Body>
  void for_logits(const at::Tensor& h, const Body& body) const {
    const int64_t rows = h.size(0);
    const at::Tensor buffer = at::empty({std::min(tile, rows), head.weight.size(0)}, h.options());
    const LoraPass lora(head.lora);
    for_tiles(rows, tile, [&](int64_t first, int64_t count) {
      const at::Tensor of_tile = h.narrow(0, first, count), logits = buffer.narrow(0, 0, count);
      write_affine_rows(logits, of_tile, head.weight, head.bias);
      lora.add(logits, of_tile, first);
      body(of_tile, logits, first, lora);
    });
  }
};

struct TiledHeadFunction : torch::autograd::Function<TiledHeadFunction> {
  // `parameters` are arguments only to tell autograd that the result depends on them.
  static at::Tensor forward(AutogradContext* node, const at::Tensor& h, at::TensorList /*parameters*/, TiledHeadState state) {
    const at::Tensor rows = as_rows(state.input.enter().to_parts(h).wait());
    state.loss.begin(rows.size(0), state.head.weight.size(0), rows);
    state.for_logits(rows, [&](const at::Tensor&, const at::Tensor& logits, int64_t first, const LoraPass&) {
      state.loss.add(logits, first);
    });
    at::Tensor sum = state.loss.total();
    node->save_for_backward({state.input.saved(h)});
    keep(node, std::move(state));
    return sum;
  }

  static variable_list backward(AutogradContext* node, variable_list grads) {
    auto& state = kept<TiledHeadState>(node);
    const at::Tensor h = node->get_saved_variables()[0];
    state.input.begin_again(h);
    const at::Tensor rows = state.input.again();
    at::Tensor dh;
    if (node->needs_input_grad(0)) dh = at::empty_like(rows);
    TileGradient gradient(state.sinks, rows.scalar_type());
    state.for_logits(rows, [&](const at::Tensor& of_tile, const at::Tensor& logits, int64_t first, const LoraPass& lora) {
      state.loss.gradient(logits, logits, grads[0], first);
      if (dh.defined()) {
        const at::Tensor of_rows = dh.narrow(0, first, of_tile.size(0));
        write_affine_input_gradient(of_rows, logits, state.head.weight);
        lora.add_input_gradient(of_rows, logits, first);
      }
      gradient.add(logits, of_tile, lora, first);
    });
    gradient.finish();
    const Crossing& enter = state.input.enter();
    if (dh.defined()) dh = enter.to_stream(enter.shaped(dh, h)).wait();
    variable_list results{dh};
    results.resize(1 + state.parameters + 1);
    return results;
  }
};

}  // namespace

at::Tensor tiled_head_loss(const at::Tensor& h, Crossing enter, const Affine& head, SoftmaxLoss loss, int64_t tile,
                           Context& context) {
  const AffineValues values = head.values(context, h, enter);
  const variable_list parameters = head.parameters(context);
  TiledHeadState state{
      values, AffineSinks(head, values, context), InputRows(h, std::move(enter)), std::move(loss), tile, parameters.size()};
  return run_function<TiledHeadFunction>(h, at::TensorList(parameters), std::move(state));
}

}  // namespace zt::nn
