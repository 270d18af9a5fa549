#include "exchange/planned.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include <algorithm>
#include <cmath>

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

// An exchange on device meta: makes the tensors that live while rows are under way, and notes the bytes.
class MetaExchange {
 public:
  MetaExchange(PlannedExchange planned, const at::Tensor& like, const Dispatcher& dispatcher)
      : planned_(std::move(planned)), like_(like), options_(dispatcher.options()), pattern_(dispatcher.pattern()) {}

  std::vector<at::Tensor> forward(Context& context) const { return moved(planned_.forward_bytes, context); }
  std::vector<at::Tensor> backward(Context& context) const { return moved(planned_.backward_bytes, context); }
  at::Tensor kept() const { return rows(planned_.kept); }

 private:
  at::Tensor rows(int64_t count) const { return at::empty({count, options_.hidden}, like_.options()); }
  std::vector<at::Tensor> moved(int64_t bytes, Context& context) const {
    std::vector<at::Tensor> buffers;
    for (const int64_t count : planned_.buffers) buffers.push_back(rows(count));
    context.sent(options_.axis, bytes, pattern_);
    return buffers;
  }

  PlannedExchange planned_;
  at::Tensor like_;
  ExchangeOptions options_;
  Pattern pattern_;
};

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
  const MetaExchange exchange(dispatcher.plan_dispatch(planned, tokens, experts), tokens, dispatcher);
  const std::vector<at::Tensor> buffers = exchange.forward(context);
  // The backward holds the rows and their order, and what the dispatcher keeps.
  const auto backward = [exchange, tokens, &context, kept = exchange.kept(), rows = outputs.front(),
                         order = numbers({planned.sent})](at::TensorList) {
    const std::vector<at::Tensor> buffers = exchange.backward(context);
    return ExchangeLayer::Exchanged{{at::empty_like(tokens), {}}, {}};
  };
  return {{outputs, {}}, backward};
}

ExchangeLayer::Backward planned_combine(at::TensorList in, const at::Tensor& result, const Dispatcher& dispatcher,
                                        Context& context) {
  const at::Tensor &rows = in[0], &weights = in[1];
  const PlannedRows planned = rows_of(weights, dispatcher.options(), context.mode);
  const MetaExchange exchange(dispatcher.plan_combine(planned, rows, weights), rows, dispatcher);
  const std::vector<at::Tensor> buffers = exchange.forward(context);
  // The backward holds the inputs, the result, the order of rows, and what the dispatcher keeps.
  return [exchange, &context, in = in.vec(), result, order = at::empty({planned.sent}, in[2].options()),
          kept = exchange.kept()](at::TensorList gradients) {
    const std::vector<at::Tensor> buffers = exchange.backward(context);
    ExchangeLayer::Exchanged gone{{at::empty_like(in[0]), at::empty_like(in[1]), {}, {}}, {}};
    if (in.size() > 4) gone.tensors.push_back(gradients[0]);
    return gone;
  };
}

}  // namespace zt::moe
