// Each rank gets the tokens of all ranks, and the sums of all ranks' experts are added (reduce_scatter).
#include <ATen/ATen.h>

#include <limits>

#include "exchange/dispatcher.h"
#include "exchange/rows.h"
#include "zt/base/error.h"
#include "zt/base/rows.h"

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

// Returns the largest number of the ranks. Collective: all of them wait for each other.
int64_t longest_of(int64_t own, Communicator& control) {
  const at::Tensor longest = at::full({1}, own, at::kLong);
  control.all_reduce(longest, longest, ReduceOp::max).synchronize();
  return longest.item<int64_t>();
}

// Returns the rows of all ranks, [all, width]; `filler` in padding rows.
at::Tensor gather_rows(const at::Tensor& own, const Gathered& tokens, Communicator& comm, double filler) {
  at::Tensor padded = own.contiguous();
  if (tokens.own < tokens.longest) {
    padded = at::full({tokens.longest, own.size(1)}, filler, own.options());
    padded.narrow(0, 0, tokens.own).copy_(own);
  }
  const at::Tensor all = at::empty({tokens.all(), own.size(1)}, own.options());
  comm.all_gather(all.view({-1}), padded.view({-1})).wait();
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

class AllGather final : public Dispatcher {
 public:
  using Dispatcher::Dispatcher;

  Dispatched dispatch(const at::Tensor& given, const at::Tensor& given_experts, Context& context) const override {
    Communicator &comm = context.comm(options_.axis), &control = context.control(options_.axis);
    const at::Tensor own = as_rows(given), own_experts_of = routes_on_host(given_experts);
    count_routes(own_experts_of, options_.experts);  // own_routes would take a wrong expert for another rank's
    const Gathered tokens{own.size(0), longest_of(own.size(0), control), control.size()};
    if (tokens.longest == kNoTokens) throw PeerFailed();  // on all ranks
    const at::Tensor all = gather_rows(own, tokens, comm, 0);
    const at::Tensor experts = gather_rows(own_experts_of, tokens, control, -1);
    note_sent(tokens.sent_bytes(all) + tokens.sent_bytes(experts), context);
    const int64_t own_experts = options_.experts / options_.ranks;
    const RowOrder order = order_rows(own_routes(experts, comm.rank(), own_experts), own_experts);
    const at::Tensor counts = at::tensor(order.counts, at::kLong);
    const at::Tensor traffic = at::cat({counts, at::full({1}, tokens.own, at::kLong)});
    const auto backward = [=, this, &comm, &context](const at::Tensor& of_tokens, const at::Tensor& of_rows) {
      const at::Tensor sums = at::empty_like(all);
      sum_rows(sums, of_rows, order);
      note_sent(tokens.sent_bytes(sums), context);
      return scatter_sums(of_tokens, sums, tokens, comm, options_.send.async);
    };
    return {rows_of_tokens(all, order), counts, order.places, traffic, {}, backward};
  }

  Combined combine(const at::Tensor& own, const Returning& returning, Context& context) const override {
    const auto& [rows, weights, places, numbers, shared] = returning;
    Communicator& comm = context.comm(options_.axis);
    const auto* counts = numbers.const_data_ptr<int64_t>();
    const RowOrder order = order_of(places, {counts, counts + numbers.numel() - 1});
    const at::Tensor own_weights = as_rows(weights);
    const Gathered tokens{own_weights.size(0), places.size(0) / options_.ranks, options_.ranks};
    const at::Tensor factors = gather_rows(own_weights, tokens, comm, 0);
    const at::Tensor sums = at::empty({tokens.all(), options_.hidden}, rows.options());
    sum_rows(sums, rows, order, factors);
    note_sent(tokens.sent_bytes(factors) + tokens.sent_bytes(sums), context);
    const auto finish = [own, more = shared] {
      if (more.defined()) at::Tensor(own).add_(as_rows(more));
    };
    const auto backward = [=, this, rows = rows, shape = weights.sizes().vec(), &comm, &context](const at::Tensor& of_sums) {
      const at::Tensor of_tokens = gather_rows(of_sums, tokens, comm, 0);
      const at::Tensor of_weights = at::empty_like(own_weights);
      const SumGradients sums_of = sum_rows_backward(of_tokens, rows, order, factors);
      const at::Tensor products = sums_of.weights.to(own_weights.scalar_type());
      note_sent(tokens.sent_bytes(of_tokens) + tokens.sent_bytes(products), context);
      return Combined::Gradients{sums_of.rows, of_weights.view(shape),
                                 scatter_sums(of_weights, products, tokens, comm, Async::no)};
    };
    return {then(scatter_sums(own, sums, tokens, comm, options_.send.async), finish), backward};
  }

  std::optional<ExchangeLayer::Started> join(Context& context) const override {
    longest_of(kNoTokens, context.control(options_.axis));
    return ExchangeLayer::Started{};
  }

  // Its traffic: the rows of each of this rank's experts, then the number of this rank's tokens.
  ReturningSizes sizes_of(const at::Tensor& places, const at::Tensor& traffic) const override {
    const auto tokens = traffic[-1].item<int64_t>();
    return {traffic.sum().item<int64_t>() - tokens, tokens, places.size(1)};
  }

  std::string kind_of(const std::string& layer) const override { return "gather_" + layer; }
  Pattern pattern() const override { return Pattern::collective; }
  int64_t ordered_ranks() const override { return options_.ranks; }
  // The backward holds the tokens of all ranks.
  PlannedExchange plan_dispatch(const PlannedRows&, const at::Tensor& tokens, const at::Tensor& experts) const override {
    const int64_t all = tokens.numel() / options_.hidden * options_.ranks;
    return {gathered_bytes(tokens) + gathered_bytes(experts), gathered_bytes(tokens), {all}, all};
  }
  PlannedExchange plan_combine(const PlannedRows&, const at::Tensor& rows, const at::Tensor& weights) const override {
    const int64_t tokens = weights.numel() / std::max<int64_t>(1, weights.size(-1));
    const int64_t sums = (options_.ranks - 1) * tokens * options_.hidden * static_cast<int64_t>(rows.element_size());
    const int64_t bytes = gathered_bytes(weights) + sums;
    return {bytes, bytes, {options_.ranks * tokens}, 0};
  }

 private:
  // Returns the bytes that a rank sends of a tensor that it gathers, or sums for all.
  int64_t gathered_bytes(const at::Tensor& own) const { return (options_.ranks - 1) * static_cast<int64_t>(own.nbytes()); }
};

}  // namespace

std::shared_ptr<const Dispatcher> make_all_gather(const ExchangeOptions& options) {
  if (options.padding || options.send.dtype)
    misuse("capacity.pad and transport are for dispatcher = \"all_to_all\": leave them out with \"all_gather\"");
  return std::make_shared<AllGather>(options);
}

}  // namespace zt::moe
