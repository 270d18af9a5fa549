// Each row goes to the rank of its expert only.
#include <ATen/ops/tensor.h>

#include "exchange/dispatcher.h"
#include "exchange/rows.h"
#include "exchange/traffic.h"
#include "zt/base/error.h"
#include "zt/base/rows.h"
#include "zt/base/tensor.h"

namespace zt::moe {

namespace {

class AllToAll final : public Dispatcher {
 public:
  using Dispatcher::Dispatcher;

  Dispatched dispatch(const at::Tensor& tokens, const at::Tensor& experts, Context& context) const override {
    const at::Tensor own = as_rows(tokens);
    const RowOrder order = order_rows(routes_on_host(experts), options_.experts, padded_rows(experts, options_, context.mode));
    const RowTraffic traffic = traffic_of(order, context);
    Communicator* comm = comm_in(context);
    const auto send = [&] { return to_experts(rows_of_tokens(own, order), traffic, comm, options_.send); };
    auto [rows, work, sent] = options_.padding ? with_context([&] { return need_of_padding(tokens); }, send) : send();
    note_sent(sent, context);
    const auto backward = [=, this, &context](const at::Tensor& of_tokens, const at::Tensor& of_rows) {
      auto [back, moved, bytes] = from_experts(of_rows, traffic, comm, options_.send);
      note_sent(bytes, context);
      return then(std::move(moved), [=, back = back] { sum_rows(of_tokens, back, order); });
    };
    return {rows, at::tensor(traffic.rows_of_experts(), at::kLong), order.places, traffic.tensor(), std::move(work), backward};
  }

  Combined combine(const at::Tensor& sums, const Returning& returning, Context& context) const override {
    const auto& [rows, weights, places, numbers, shared] = returning;
    const RowTraffic traffic = RowTraffic::from_tensor(numbers, options_.ranks);
    const RowOrder order = order_of(places, traffic.sent);
    const at::Tensor factors = weights.reshape(order.places.sizes());
    Communicator* comm = comm_in(context);
    auto [back, work, sent] = from_experts(rows, traffic, comm, options_.send);
    note_sent(sent, context);
    const auto finish = [=, back = back, more = shared] {
      sum_rows(sums, back, order, factors, more.defined() ? as_rows(more) : more);
    };
    const auto backward = [=, this, back = back, weights = weights, &context](const at::Tensor& of_sums) {
      const SumGradients gradients = sum_rows_backward(of_sums, back, order, factors);
      const at::Tensor of_weights = gradients.weights.to(weights.scalar_type()).view(weights.sizes());
      auto [of_rows, moved, bytes] = to_experts(gradients.rows, traffic, comm, options_.send);
      note_sent(bytes, context);
      return Combined::Gradients{of_rows, of_weights, std::move(moved)};
    };
    return {then(std::move(work), finish), backward};
  }

  // With padding no counts are exchanged by which the other ranks could learn of the failure.
  std::optional<ExchangeLayer::Started> join(Context& context) const override {
    if (options_.padding) return std::nullopt;
    refuse_counts(options_.experts, context.control(options_.axis));
    return ExchangeLayer::Started{};
  }

  ReturningSizes sizes_of(const at::Tensor& places, const at::Tensor& traffic) const override {
    return {RowTraffic::from_tensor(traffic, options_.ranks).rows_received(), places.size(0), places.size(1)};
  }

  Pattern pattern() const override { return Pattern::all_to_all; }
  PlannedExchange plan_dispatch(const PlannedRows& planned, const at::Tensor& tokens, const at::Tensor&) const override {
    return {planned_bytes(planned.sent, tokens), planned_bytes(planned.received, tokens), buffers(planned), 0};
  }
  // The backward holds the rows that came back, for the gradient of the weights.
  PlannedExchange plan_combine(const PlannedRows& planned, const at::Tensor& rows, const at::Tensor&) const override {
    return {planned_bytes(planned.received, rows), planned_bytes(planned.sent, rows), buffers(planned),
            options_.ranks > 1 ? planned.sent : 0};
  }

 private:
  // Returns null for one rank.
  Communicator* comm_in(Context& context) const { return options_.ranks == 1 ? nullptr : &context.comm(options_.axis); }
  std::string need_of_padding(const at::Tensor& tokens) const {
    return fmt::format(
        "with capacity.pad, all ranks of axis '{}' need equally many tokens, and this one has {}: give them as many, or leave pad "
        "out",
        options_.axis, describe(tokens));
  }
  RowTraffic traffic_of(const RowOrder& order, Context& context) const {
    // With padding, all ranks send as much to each expert.
    if (options_.ranks == 1 || options_.padding) return {order.counts, order.counts, options_.ranks};
    return exchange_counts(order.counts, context.control(options_.axis));
  }

  // Returns the bytes that a rank sends to the others if it sends equally many of so many rows to each, itself included.
  int64_t planned_bytes(int64_t rows, const at::Tensor& like) const {
    const at::ScalarType dtype = options_.send.dtype.value_or(like.scalar_type());
    return rows * (options_.ranks - 1) / options_.ranks * options_.hidden * static_cast<int64_t>(c10::elementSize(dtype));
  }
  // The rows that are sent, and those that arrive in the order of ranks: one expert gets its rows in that order.
  std::vector<int64_t> buffers(const PlannedRows& planned) const {
    if (options_.ranks == 1) return {};
    if (options_.experts == options_.ranks) return {planned.sent};
    return {planned.sent, planned.received};
  }
};

}  // namespace

std::shared_ptr<const Dispatcher> make_all_to_all(const ExchangeOptions& options) {
  return std::make_shared<AllToAll>(options);
}

}  // namespace zt::moe
