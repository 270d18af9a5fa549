#include "head_function.h"

#include "parts/function.h"
#include "parts/tiles.h"
#include "zt/base/rows.h"

namespace zt::nn {

LogitFunction::~LogitFunction() = default;

namespace {

struct WholeHeadState {
  AffineValues head;
  AffineGradient gradient;
  InputRows input;
  std::shared_ptr<LogitFunction> function;
  size_t parameters;       // their number
  at::Tensor logits = {};  // the only reference, because the backward overwrites them
};

struct WholeHeadFunction : torch::autograd::Function<WholeHeadFunction> {
  // `parameters` are arguments only to tell autograd that the result depends on them.
  static variable_list forward(AutogradContext* node, const at::Tensor& h, at::TensorList /*parameters*/, WholeHeadState state) {
    const at::Tensor rows = as_rows(state.input.enter().to_parts(h).wait());
    state.logits = affine_rows(rows, state.head.weight, state.head.bias);
    LoraPass(state.head.lora).add(state.logits, rows);
    state.function->begin(rows.size(0), state.logits.size(1), state.logits);
    state.function->add(state.logits, 0);
    variable_list results = state.function->total();
    node->save_for_backward({h});
    node->set_materialize_grads(false);
    keep(node, std::move(state));
    return results;
  }

  static variable_list backward(AutogradContext* node, variable_list grads) {
    auto& state = kept<WholeHeadState>(node);
    if (!state.logits.defined()) fault("the backward of a head ran twice: the first backward has overwritten its logits");
    const at::Tensor dlogits = std::exchange(state.logits, at::Tensor()), h = node->get_saved_variables()[0];
    const Crossing& enter = state.input.enter();
    state.input.begin_again(h);
    state.function->gradient(dlogits, grads, 0);
    MoveResult dh;
    const bool needs_dh = node->needs_input_grad(0);
    const at::Tensor of_rows = needs_dh ? affine_input_gradient(dlogits, state.head.weight) : at::Tensor();
    LoraPass(state.head.lora).add_input_gradient(of_rows, dlogits);
    if (needs_dh) dh = enter.to_stream(enter.shaped(of_rows, h));
    state.gradient.add(dlogits, state.input.again());
    variable_list results{dh.wait()};
    results.resize(1 + state.parameters + 1);
    return results;
  }
};

struct TiledHeadState {
  AffineValues head;
  AffineSinks sinks;
  InputRows input;
  std::shared_ptr<LogitFunction> function;
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
  static variable_list forward(AutogradContext* node, const at::Tensor& h, at::TensorList /*parameters*/, TiledHeadState state) {
    const at::Tensor rows = as_rows(state.input.enter().to_parts(h).wait());
    state.function->begin(rows.size(0), state.head.weight.size(0), rows);
    state.for_logits(rows, [&](const at::Tensor&, const at::Tensor& logits, int64_t first, const LoraPass&) {
      state.function->add(logits, first);
    });
    variable_list results = state.function->total();
    node->save_for_backward({state.input.saved(h)});
    node->set_materialize_grads(false);
    keep(node, std::move(state));
    return results;
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
      state.function->gradient(logits, grads, first);
      const at::Tensor of_rows = dh.defined() ? dh.narrow(0, first, of_tile.size(0)) : dh;
      if (dh.defined()) write_affine_input_gradient(of_rows, logits, state.head.weight);
      lora.add_input_gradient(of_rows, logits, first);
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

std::vector<at::Tensor> head_function(const at::Tensor& h, Crossing enter, const Affine& head,
                                      std::shared_ptr<LogitFunction> function, int64_t tile, Context& context) {
  const AffineValues values = head.values(context, h, enter);
  const variable_list parameters = head.parameters(context);
  if (tile > 0) {
    TiledHeadState state{
        values, AffineSinks(head, values, context), InputRows(h, std::move(enter)), std::move(function), tile, parameters.size()};
    return run_function<TiledHeadFunction>(h, at::TensorList(parameters), std::move(state));
  }
  WholeHeadState state{values, AffineGradient(head, values, context), InputRows(h, std::move(enter), values.needs_input()),
                       std::move(function), parameters.size()};
  return run_function<WholeHeadFunction>(h, at::TensorList(parameters), std::move(state));
}

}  // namespace zt::nn
