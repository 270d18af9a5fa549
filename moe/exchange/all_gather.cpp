#include <ATen/ATen.h>

#include <limits>

#include "exchange/exchange.h"
#include "exchange/layer_parts.h"
#include "exchange/rows.h"
#include "zt/base/error.h"

namespace zt::moe {

namespace {

// The tokens of all ranks: each rank's are padded to as many rows as the longest has.
struct Gathered {
  int64_t own, longest;
  int ranks;

  int64_t all() const { return longest * ranks; }
  // Returns the bytes that this rank sends in an all_gather of its rows, or in a reduce_scatter of the rows of all.
  int64_t sent_bytes(const at::Tensor& rows) const {
    return (ranks - 1) * longest * rows.size(1) * static_cast<int64_t>(rows.element_size());
  }
};

constexpr int64_t kNoTokens = std::numeric_limits<int64_t>::max();  // of a rank whose step has failed

// Collective: all ranks wait for each other. Throws PeerFailed on all of them if one has kNoTokens.
Gathered find_longest(int64_t own, Communicator& control) {
  const at::Tensor longest = at::full({1}, own, at::kLong);
  control.all_reduce(longest, longest, ReduceOp::max).synchronize();
  if (longest.item<int64_t>() == kNoTokens) throw PeerFailed();
  return {own, longest.item<int64_t>(), control.size()};
}

// Returns the rows of all ranks, [all, width]; `filler` in padding rows.
at::Tensor gather_rows(const at::Tensor& own, const Gathered& tokens, Communicator& comm, double filler) {
  at::Tensor padded = own.contiguous();
  if (tokens.own < tokens.longest) {
    padded = at::full({tokens.longest, own.size(1)}, filler, own.options());
    padded.narrow(0, 0, tokens.own).copy_(own);
  }
  const at::Tensor all = at::empty({tokens.all(), own.size(1)}, own.options());
  comm.all_gather(all.view({-1}), padded.view({-1})).synchronize();
  return all;
}

// Starts to sum what all ranks have for this rank's tokens. `all` [all, width]; `own`: the result, [own, width].
Work scatter_sums(const at::Tensor& own, const at::Tensor& all, const Gathered& tokens, Communicator& comm, Async async) {
  const at::Tensor padded = at::empty({tokens.longest, all.size(1)}, all.options());
  Work work = comm.reduce_scatter(padded.view({-1}), all.view({-1}), ReduceOp::sum, async);
  return then(std::move(work), [=] { at::Tensor(own).copy_(padded.narrow(0, 0, tokens.own)); });
}

// Returns the experts of all tokens, with those of other ranks' experts emptied, and counted from this rank's first one.
at::Tensor own_routes(const at::Tensor& all, int rank, int64_t own_experts) {
  const at::Tensor local = all - rank * own_experts;
  return local.masked_fill(local.lt(0).logical_or(local.ge(own_experts)), -1);
}

ExchangeOptions gathering(ExchangeOptions options) {
  options.gathers = true;
  return options;
}

class GatherDispatch final : public DispatchLayer {
 public:
  using DispatchLayer::DispatchLayer;

  Started start(at::TensorList in, Context& context) override {
    check_tokens(in[0], in[1], options_);
    if (in[0].is_meta()) return planned_dispatch(in[0], in[1], options_, context);
    Communicator &comm = context.comm(options_.axis), &control = context.control(options_.axis);
    const at::Tensor own = as_rows(in[0]);
    const Gathered tokens = find_longest(own.size(0), control);
    const at::Tensor all = gather_rows(own, tokens, comm, 0);
    const at::Tensor experts = gather_rows(routes_on_host(in[1]), tokens, control, -1);
    context.sent(options_.axis, tokens.sent_bytes(all) + tokens.sent_bytes(experts), Pattern::collective);
    const int64_t own_experts = options_.experts / options_.ranks;
    const RowOrder order = order_rows(own_routes(experts, comm.rank(), own_experts), own_experts);
    const at::Tensor rows = rows_of_tokens(all, order), group_rows = at::tensor(order.counts, at::kLong);
    const auto backward = [=, axis = options_.axis, shape = in[0].sizes().vec(), async = options_.transport.async, &comm,
                           &context](at::TensorList gradients) {
      const at::Tensor sums = at::empty_like(all), result = at::empty(shape, own.options());
      sum_rows(sums, gradient_or_zeros(gradients[0], rows), order);
      context.sent(axis, tokens.sent_bytes(sums), Pattern::collective);
      return Exchanged{{result, {}}, scatter_sums(as_rows(result), sums, tokens, comm, async)};
    };
    return {{{rows, group_rows, order.places, group_rows}, {}}, backward};
  }

  std::optional<Started> join(at::TensorList, Context& context) override {
    find_longest(kNoTokens, context.control(options_.axis));
    return Started{};
  }

  std::string kind() const override { return "gather_dispatch"; }
};

class GatherCombine final : public CombineLayer {
 public:
  using CombineLayer::CombineLayer;

  Started start(at::TensorList in, Context& context) override {
    const auto [rows, weights, more, result] = tensors_of(in);
    if (rows.is_meta()) return {{{result}, {}}, planned_combine(in, result, options_, context)};
    Communicator& comm = context.comm(options_.axis);
    const auto* counts = in[3].const_data_ptr<int64_t>();
    const RowOrder order = order_of(in[2], {counts, counts + in[3].numel()});
    const at::Tensor own_weights = as_rows(weights);
    const Gathered tokens{own_weights.size(0), in[2].size(0) / options_.ranks, options_.ranks};
    const at::Tensor factors = gather_rows(own_weights, tokens, comm, 0);
    const at::Tensor sums = at::empty({tokens.all(), options_.hidden}, rows.options());
    sum_rows(sums, rows, order, factors);
    context.sent(options_.axis, tokens.sent_bytes(factors) + tokens.sent_bytes(sums), Pattern::collective);
    const at::Tensor own = as_rows(result);
    Work work = scatter_sums(own, sums, tokens, comm, options_.transport.async);
    const auto finish = [=] {
      if (more.defined()) at::Tensor(own).add_(as_rows(more));
    };
    const auto backward = [=, axis = options_.axis, &comm, &context](at::TensorList gradients) {
      const at::Tensor gradient = gradient_or_zeros(gradients[0], result);
      const at::Tensor of_tokens = gather_rows(as_rows(gradient), tokens, comm, 0);
      const at::Tensor of_weights = at::empty_like(own_weights);
      const SumGradients sums_of = sum_rows_backward(of_tokens, rows, order, factors);
      const at::Tensor products = sums_of.weights.to(own_weights.scalar_type());
      context.sent(axis, tokens.sent_bytes(of_tokens) + tokens.sent_bytes(products), Pattern::collective);
      Exchanged gone{{sums_of.rows, of_weights.view(weights.sizes()), {}, {}},
                     scatter_sums(of_weights, products, tokens, comm, Async::no)};
      if (more.defined()) gone.tensors.push_back(gradient);
      return gone;
    };
    return {{{result}, then(std::move(work), finish)}, backward};
  }

  std::string kind() const override { return "gather_combine"; }
};

}  // namespace

// One rank has all tokens already.
std::shared_ptr<Layer> make_gather_dispatch(const ExchangeOptions& options) {
  if (options.ranks == 1) return make_dispatch(options);
  return std::make_shared<GatherDispatch>(gathering(options));
}

std::shared_ptr<Layer> make_gather_combine(const ExchangeOptions& options) {
  if (options.ranks == 1) return make_combine(options);
  return std::make_shared<GatherCombine>(gathering(options));
}

}  // namespace zt::moe
