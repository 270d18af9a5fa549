#include "tiled_head.h"

#include "parts/function.h"
#include "parts/tiles.h"
#include "zt/base/rows.h"
#include "zt/gemm/gemm.h"

namespace zt::nn {

namespace {

struct TiledHeadState {
  AffineValues head;
  AffineSinks sinks;
  InputRows input;
  SoftmaxLoss loss;
  int64_t tile;

  // Calls body(rows of h, their logits, first row) for each tile. The logits are in one buffer.
  template <class Body>
  void for_logits(const at::Tensor& h, const Body& body) const {
    const int64_t rows = h.size(0);
    const at::Tensor buffer = at::empty({std::min(tile, rows), head.weight.size(0)}, h.options());
    for_tiles(rows, tile, [&](int64_t first, int64_t count) {
      const at::Tensor of_tile = h.narrow(0, first, count), logits = buffer.narrow(0, 0, count);
      write_affine_rows(logits, of_tile, head.weight, head.bias);
      body(of_tile, logits, first);
    });
  }
};

struct TiledHeadFunction : torch::autograd::Function<TiledHeadFunction> {
  // `weight` and `bias` are those of the state.
  static at::Tensor forward(AutogradContext* node, const at::Tensor& h, const at::Tensor& /*weight*/,
                            const std::optional<at::Tensor>& /*bias*/, TiledHeadState state) {
    const at::Tensor rows = as_rows(state.input.enter().to_parts(h).wait());
    state.loss.begin(rows.size(0), state.head.weight.size(0), rows);
    state.for_logits(rows, [&](const at::Tensor&, const at::Tensor& logits, int64_t first) { state.loss.add(logits, first); });
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
    state.for_logits(rows, [&](const at::Tensor& of_tile, const at::Tensor& logits, int64_t first) {
      state.loss.gradient(logits, logits, grads[0], first);
      if (dh.defined()) gemm(GemmKind::input_gradient, logits, state.head.weight, dh.narrow(0, first, of_tile.size(0)));
      gradient.add(logits, of_tile);
    });
    gradient.finish();
    const Crossing& enter = state.input.enter();
    if (dh.defined()) dh = enter.to_stream(enter.shaped(dh, h)).wait();
    return {dh, {}, {}, {}};
  }
};

}  // namespace

at::Tensor tiled_head_loss(const at::Tensor& h, Crossing enter, const Affine& head, SoftmaxLoss loss, int64_t tile,
                           Context& context) {
  const AffineValues values = head.values(context);
  TiledHeadState state{values, AffineSinks(head, context), InputRows(h, std::move(enter)), std::move(loss), tile};
  return run_function<TiledHeadFunction>(h, values.weight, maybe(values.bias), std::move(state));
}

}  // namespace zt::nn
