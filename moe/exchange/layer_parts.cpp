#include "exchange/layer_parts.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <cmath>

#include "zt/base/error.h"
#include "zt/base/tensor.h"

namespace zt::moe {

at::Tensor as_rows(const at::Tensor& x) {
  const int64_t columns = x.size(-1);
  return x.contiguous().view({columns == 0 ? 0 : x.numel() / columns, columns});
}

at::Tensor routes_on_host(const at::Tensor& experts) {
  return as_rows(experts.cpu());
}

at::Tensor gradient_or_zeros(const at::Tensor& gradient, const at::Tensor& value) {
  return gradient.defined() ? gradient.contiguous() : at::zeros_like(value);
}

void check_tokens(const at::Tensor& tokens, const at::Tensor& experts, const ExchangeOptions& options) {
  if (tokens.dim() < 2 || tokens.size(-1) != options.hidden) misuse("takes [..., {}], got {}", options.hidden, describe(tokens));
  const auto leading = [](const at::Tensor& x) { return x.sizes().slice(0, static_cast<size_t>(x.dim() - 1)); };
  if (experts.dim() != tokens.dim() || experts.scalar_type() != at::kLong || leading(experts) != leading(tokens))
    misuse("the experts of tokens {} must be int64 of the same leading shape, got {}", describe(tokens), describe(experts));
}

Communicator* comm_of(const ExchangeOptions& options, Context& context) {
  return options.ranks == 1 ? nullptr : &context.comm(options.axis);
}

std::vector<std::string> TokenExchange::axes() const {
  return options_.ranks == 1 ? std::vector<std::string>() : std::vector<std::string>{options_.axis};
}

std::vector<StatInfo> TokenExchange::stats() const {
  if (options_.ranks == 1) return {};
  return {{"bytes_sent", 1}, {"seconds", 2}};
}

Stats TokenExchange::report(const Stats& sums) const {
  if (sums.empty()) return {};
  const at::Tensor& seconds = sums.at("seconds");
  return {{"bytes_sent", sums.at("bytes_sent")[0]}, {"seconds", seconds[0] / seconds[1]}};
}

Io DispatchLayer::io() const {
  return {.inputs = {"h", "route_experts"},
          .outputs = {{"rows"}, {"group_rows", false}, {"places", false}, {"traffic", false}},
          .losses = {},
          .stats = stats()};
}

std::string DispatchLayer::assumption() const {
  if (options_.capacity) return "experts get as many rows as the capacity allows: no routing needs more memory";
  if (options_.ranks == 1) return {};
  return fmt::format(
      "the experts of a rank get {:g} times the rows of balanced routing (planned_rows); without a capacity they may get up to {} "
      "times",
      options_.planned_rows, options_.ranks);
}

Io CombineLayer::io() const {
  Io io{.inputs = {"rows", "route_weights", "places", "traffic"}, .outputs = {{"h"}}, .losses = {}, .stats = stats()};
  if (options_.has_shared) io.inputs.emplace_back("shared");
  return io;
}

CombineLayer::Tensors CombineLayer::tensors_of(at::TensorList in) const {
  Tensors tensors{.rows = in[0].contiguous(), .weights = in[1], .shared = {}, .result = {}};
  if (options_.has_shared) tensors.shared = in[4];
  std::vector<int64_t> shape = tensors.weights.sizes().vec();
  shape.back() = options_.hidden;
  tensors.result = at::empty(shape, tensors.rows.options());
  return tensors;
}

std::optional<ExchangeLayer::Started> CombineLayer::join(at::TensorList in, Context& context) {
  const auto is_missing = [](const at::Tensor& input) { return input.dim() == 1 && input.numel() == 0; };
  if (is_missing(in[3])) return Started{};
  std::vector<at::Tensor> filled = in.vec();
  const int64_t rows =
      options_.gathers ? in[3].sum().item<int64_t>() : Traffic::from_tensor(in[3], options_.ranks).rows_received();
  if (is_missing(in[0])) filled[0] = at::zeros({rows, options_.hidden}, in[0].options());
  if (options_.has_shared && is_missing(in[4])) filled[4] = at::zeros_like(tensors_of(filled).result);
  return start(filled, context);
}

namespace {

// Returns the rows that an expert gets of one rank at most. experts: [samples, tokens, routes].
int64_t room_of_expert(const at::Tensor& experts, const CapacityOptions& capacity, const ExchangeOptions& options, Mode mode) {
  if (experts.dim() != 3)
    misuse("a capacity needs tokens of samples, [samples, tokens, hidden], got experts {}", describe(experts));
  const bool per_sample = capacity.per == RoomOf::sample;
  const int64_t samples = experts.size(0), tokens = experts.size(1), routes = options.top_k > 0 ? options.top_k : experts.size(2);
  const int64_t room = capacity.rows(mode == Mode::train, per_sample ? tokens : samples * tokens, routes, options.experts);
  return per_sample ? samples * room : room;
}

// The rows of a planned exchange: those that this rank sends, and those of its experts.
struct PlannedRows {
  int64_t sent, received;
};

PlannedRows planned_rows(const at::Tensor& experts, const ExchangeOptions& options, Mode mode) {
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

// Returns the bytes that a rank sends to the others if it sends equally many of so many rows to each, itself included.
int64_t planned_bytes(int64_t rows, const at::Tensor& of, const ExchangeOptions& options) {
  const at::ScalarType dtype = options.transport.dtype.value_or(of.scalar_type());
  return rows * (options.ranks - 1) / options.ranks * options.hidden * static_cast<int64_t>(c10::elementSize(dtype));
}

// Returns the tensors that live while rows are on their way: those that are sent, and those that arrive in the order of ranks.
// `tokens`: of this rank.
std::vector<at::Tensor> transfer_buffers(const PlannedRows& planned, int64_t tokens, const at::Tensor& like,
                                         const ExchangeOptions& options) {
  if (options.ranks == 1) return {};
  const auto rows = [&](int64_t count) { return at::empty({count, options.hidden}, like.options()); };
  if (options.gathers) return {rows(options.ranks * tokens)};
  // A rank's one expert gets its rows in the order of ranks.
  if (options.experts == options.ranks) return {rows(planned.sent)};
  return {rows(planned.sent), rows(planned.received)};
}

// Notes the bytes of a planned exchange.
void note_sent(int64_t bytes, const ExchangeOptions& options, Context& context) {
  context.sent(options.axis, bytes, options.gathers ? Pattern::collective : Pattern::all_to_all);
}

// Returns the bytes that a rank sends of a tensor that it gathers, or sums for all.
int64_t gathered_bytes(const at::Tensor& own, const ExchangeOptions& options) {
  return (options.ranks - 1) * static_cast<int64_t>(own.nbytes());
}

}  // namespace

int64_t padded_rows(const at::Tensor& experts, const ExchangeOptions& options, Mode mode) {
  return options.padding ? room_of_expert(experts, *options.padding, options, mode) : -1;
}

ExchangeLayer::Started planned_dispatch(const at::Tensor& tokens, const at::Tensor& experts, const ExchangeOptions& options,
                                        Context& context) {
  const PlannedRows planned = planned_rows(experts, options, context.mode);
  const auto numbers = [&](at::IntArrayRef shape) { return at::empty(shape, experts.options()); };
  const int64_t routes = experts.size(-1), all = gathered_bytes(tokens, options);
  const int64_t ranks = options.gathers ? options.ranks : 1;  // whose tokens this rank orders
  const std::vector<at::Tensor> outputs{
      at::empty({planned.received, options.hidden}, tokens.options()), numbers({options.experts / options.ranks}),
      numbers({ranks * experts.numel() / std::max<int64_t>(1, routes), routes}), numbers({2 * options.experts})};
  const int64_t count = tokens.numel() / options.hidden;
  const std::vector<at::Tensor> buffers = transfer_buffers(planned, count, tokens, options);
  note_sent(options.gathers ? all + gathered_bytes(experts, options) : planned_bytes(planned.sent, tokens, options), options,
            context);
  // The backward holds the rows and their order, and after an all_gather the tokens of all ranks.
  const at::Tensor kept = options.gathers ? at::empty({options.ranks * tokens.numel()}, tokens.options()) : at::Tensor();
  const auto backward = [=, &context, rows = outputs.front(), order = numbers({planned.sent})](at::TensorList) {
    const std::vector<at::Tensor> of_gradients = transfer_buffers(planned, count, tokens, options);
    const auto gathered = static_cast<int64_t>(kept.defined() ? kept.nbytes() - tokens.nbytes() : 0);
    note_sent(options.gathers ? gathered : planned_bytes(planned.received, tokens, options), options, context);
    return ExchangeLayer::Exchanged{{at::empty_like(tokens), {}}, {}};
  };
  return {{outputs, {}}, backward};
}

ExchangeLayer::Backward planned_combine(at::TensorList in, const at::Tensor& result, const ExchangeOptions& options,
                                        Context& context) {
  const at::Tensor &rows = in[0], &weights = in[1];
  const PlannedRows planned = planned_rows(weights, options, context.mode);
  const int64_t tokens = weights.numel() / std::max<int64_t>(1, weights.size(-1));
  const int64_t sums = (options.ranks - 1) * tokens * options.hidden * static_cast<int64_t>(rows.element_size());
  const int64_t gathered = gathered_bytes(weights, options) + sums;
  const std::vector<at::Tensor> buffers = transfer_buffers(planned, tokens, rows, options);
  note_sent(options.gathers ? gathered : planned_bytes(planned.received, rows, options), options, context);
  // The backward holds the result, the order of rows, and for the gradient of the weights the rows that came back.
  const at::Tensor order = at::empty({planned.sent}, in[2].options());
  const bool keeps = options.ranks > 1 && !options.gathers;
  const at::Tensor kept = keeps ? at::empty({planned.sent, options.hidden}, rows.options()) : at::Tensor();
  return [=, &context, in = in.vec(), kept = kept, result = result, order = order](at::TensorList gradients) {
    const std::vector<at::Tensor> of_gradients = transfer_buffers(planned, tokens, in[0], options);
    note_sent(options.gathers ? gathered : planned_bytes(planned.sent, in[0], options), options, context);
    ExchangeLayer::Exchanged gone{{at::empty_like(in[0]), at::empty_like(in[1]), {}, {}}, {}};
    if (in.size() > 4) gone.tensors.push_back(gradients[0]);
    return gone;
  };
}

}  // namespace zt::moe
