#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>

#include "exchange/exchange.h"
#include "exchange/layer_parts.h"
#include "exchange/rows.h"
#include "zt/base/error.h"
#include "zt/base/tensor.h"

namespace zt::moe {

namespace {

class Dispatch final : public DispatchLayer {
 public:
  using DispatchLayer::DispatchLayer;

  Started start(at::TensorList in, Context& context) override {
    check_tokens(in[0], in[1], options_);
    if (in[0].is_meta()) return planned_dispatch(in[0], in[1], options_, context);
    const at::Tensor tokens = as_rows(in[0]);
    const RowOrder order = order_rows(routes_on_host(in[1]), options_.experts, padded_rows(in[1], options_, context.mode));
    const Traffic traffic = traffic_of(order, context);
    Communicator* comm = comm_of(options_, context);
    const auto send = [&] { return to_experts(rows_of_tokens(tokens, order), traffic, comm, options_.transport); };
    auto [rows, work, sent] = options_.padding ? with_context([&] { return need_of_padding(in[0]); }, send) : send();
    context.sent(options_.axis, sent, Pattern::all_to_all);
    const at::Tensor group_rows = at::tensor(traffic.rows_of_experts(), at::kLong);
    const auto backward = [=, axis = options_.axis, shape = in[0].sizes().vec(), transport = options_.transport, rows = rows,
                           &context](at::TensorList gradients) {
      const at::Tensor of_rows = gradient_or_zeros(gradients[0], rows);
      auto [back, moved, bytes] = from_experts(of_rows, traffic, comm, transport);
      context.sent(axis, bytes, Pattern::all_to_all);
      const at::Tensor result = at::empty(shape, tokens.options());
      return Exchanged{{result, {}}, then(std::move(moved), [=, back = back] { sum_rows(as_rows(result), back, order); })};
    };
    return {{{rows, group_rows, order.places, traffic.tensor()}, std::move(work)}, backward};
  }

  // With padding no counts are exchanged by which the other ranks could learn of the failure.
  std::optional<Started> join(at::TensorList, Context& context) override {
    if (options_.padding) return std::nullopt;
    refuse_counts(options_.experts, context.control(options_.axis));
    return Started{};
  }

  std::string kind() const override { return "dispatch"; }

 private:
  std::string need_of_padding(const at::Tensor& tokens) const {
    return fmt::format(
        "with capacity.pad, all ranks of axis '{}' need equally many tokens, and this one has {}: give them as many, or leave pad "
        "out",
        options_.axis, describe(tokens));
  }
  Traffic traffic_of(const RowOrder& order, Context& context) const {
    // With padding, all ranks send as much to each expert.
    if (options_.ranks == 1 || options_.padding) return {order.counts, order.counts, options_.ranks};
    return exchange_counts(order.counts, context.control(options_.axis));
  }
};

class Combine final : public CombineLayer {
 public:
  using CombineLayer::CombineLayer;

  Started start(at::TensorList in, Context& context) override {
    const auto [rows, weights, more, result] = tensors_of(in);
    if (rows.is_meta()) return {{{result}, {}}, planned_combine(in, result, options_, context)};
    const Traffic traffic = Traffic::from_tensor(in[3], options_.ranks);
    const RowOrder order = order_of(in[2], traffic.sent());
    const at::Tensor factors = weights.reshape(order.places.sizes());
    Communicator* comm = comm_of(options_, context);
    auto [back, work, sent] = from_experts(rows, traffic, comm, options_.transport);
    context.sent(options_.axis, sent, Pattern::all_to_all);
    const auto finish = [=, back = back] {
      sum_rows(as_rows(result), back, order, factors, more.defined() ? as_rows(more) : more);
    };
    const auto backward = [=, axis = options_.axis, transport = options_.transport, back = back,
                           &context](at::TensorList gradients) {
      const at::Tensor gradient = gradient_or_zeros(gradients[0], result), of_tokens = as_rows(gradient);
      const SumGradients gradients_of = sum_rows_backward(of_tokens, back, order, factors);
      const at::Tensor of_weights = gradients_of.weights.to(weights.scalar_type()).view(weights.sizes());
      auto [of_rows, moved, bytes] = to_experts(gradients_of.rows, traffic, comm, transport);
      context.sent(axis, bytes, Pattern::all_to_all);
      Exchanged gone{{of_rows, of_weights, {}, {}}, std::move(moved)};
      if (more.defined()) gone.tensors.push_back(gradient);
      return gone;
    };
    return {{{result}, then(std::move(work), finish)}, backward};
  }

  std::string kind() const override { return "combine"; }
};

}  // namespace

std::shared_ptr<Layer> make_dispatch(const ExchangeOptions& options) {
  return std::make_shared<Dispatch>(options);
}

std::shared_ptr<Layer> make_combine(const ExchangeOptions& options) {
  return std::make_shared<Combine>(options);
}

}  // namespace zt::moe
