#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include <algorithm>
#include <cmath>

#include "exchange/dispatcher.h"

namespace zt::moe {

namespace {

PlannedRows rows_of(const at::Tensor& experts, const ExchangeOptions& options, Mode mode) {
  const int64_t routes = experts.numel();
  if (options.padding) {
    const int64_t rows = padded_rows(experts, options, mode) * options.experts;
    return {rows, rows};
  }
  if (options.capacity) {
    const int64_t room = room_of_expert(experts, *options.capacity, options, mode) * options.experts;
    return {std::min(routes, room), std::min(routes * options.ranks, room)};
  }
  return {routes, static_cast<int64_t>(std::ceil(static_cast<double>(routes) * options.planned_rows))};
}

at::Tensor empty_rows(int64_t count, const at::Tensor& like, const Dispatcher& dispatcher) {
  return at::empty({count, dispatcher.options().hidden}, like.options());
}

// Notes the bytes that are sent. Returns the tensors that live while rows are under way.
std::vector<at::Tensor> moved(int64_t bytes, const PlannedExchange& planned, const at::Tensor& like, const Dispatcher& dispatcher,
                              Context& context) {
  std::vector<at::Tensor> buffers;
  for (const int64_t count : planned.buffers) buffers.push_back(empty_rows(count, like, dispatcher));
  context.sent(dispatcher.options().axis, bytes, dispatcher.pattern());
  return buffers;
}

}  // namespace

ExchangeLayer::Started planned_dispatch(const at::Tensor& tokens, const at::Tensor& experts, const Dispatcher& dispatcher,
                                        Context& context) {
  const ExchangeOptions& options = dispatcher.options();
  const PlannedRows planned = rows_of(experts, options, context.mode);
  const auto numbers = [&](at::IntArrayRef shape) { return at::empty(shape, experts.options()); };
  const int64_t routes = experts.size(-1), ordered = dispatcher.ordered_ranks() * experts.numel();
  const std::vector<at::Tensor> outputs{
      at::empty({planned.received, options.hidden}, tokens.options()), numbers({options.experts / options.ranks}),
      numbers({ordered / std::max<int64_t>(1, routes), routes}), numbers({2 * options.experts})};
  const PlannedExchange exchange = dispatcher.plan_dispatch(planned, tokens, experts);
  const std::vector<at::Tensor> buffers = moved(exchange.forward_bytes, exchange, tokens, dispatcher, context);
  // The backward holds the rows and their order, and what the dispatcher keeps.
  const auto backward = [exchange, tokens, &dispatcher, &context, kept = empty_rows(exchange.kept, tokens, dispatcher),
                         rows = outputs.front(), order = numbers({planned.sent})](at::TensorList) {
    const std::vector<at::Tensor> buffers = moved(exchange.backward_bytes, exchange, tokens, dispatcher, context);
    return ExchangeLayer::Exchanged{{at::empty_like(tokens), {}}, {}};
  };
  return {{outputs, {}}, backward};
}

ExchangeLayer::Backward planned_combine(at::TensorList in, const at::Tensor& result, const Dispatcher& dispatcher,
                                        Context& context) {
  const at::Tensor &rows = in[0], &weights = in[1];
  const PlannedRows planned = rows_of(weights, dispatcher.options(), context.mode);
  const PlannedExchange exchange = dispatcher.plan_combine(planned, rows, weights);
  const std::vector<at::Tensor> buffers = moved(exchange.forward_bytes, exchange, rows, dispatcher, context);
  // The backward holds the inputs, the result, the order of rows, and what the dispatcher keeps.
  return [exchange, &dispatcher, &context, in = in.vec(), result, order = at::empty({planned.sent}, in[2].options()),
          kept = empty_rows(exchange.kept, rows, dispatcher)](at::TensorList gradients) {
    const std::vector<at::Tensor> buffers = moved(exchange.backward_bytes, exchange, in[0], dispatcher, context);
    ExchangeLayer::Exchanged gone{{at::empty_like(in[0]), at::empty_like(in[1]), {}, {}}, {}};
    if (in.size() > 4) gone.tensors.push_back(gradients[0]);
    return gone;
  };
}

}  // namespace zt::moe
