#include "exchange/exchange.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include "exchange/dispatcher.h"
#include "zt/base/error.h"
#include "zt/base/rows.h"
#include "zt/base/tensor.h"
#include "zt/model/layer_extras.h"

namespace zt::moe {

namespace {

// Returns the gradient, contiguous; zeros like `value` if it is undefined, so that all ranks still communicate.
at::Tensor gradient_or_zeros(const at::Tensor& gradient, const at::Tensor& value) {
  return gradient.defined() ? gradient.contiguous() : at::zeros_like(value);
}

void check_tokens(const at::Tensor& tokens, const at::Tensor& experts, const ExchangeOptions& options) {
  if (tokens.dim() < 2 || tokens.size(-1) != options.hidden) misuse("takes [..., {}], got {}", options.hidden, describe(tokens));
  const auto leading = [](const at::Tensor& x) { return x.sizes().slice(0, static_cast<size_t>(x.dim() - 1)); };
  if (experts.dim() != tokens.dim() || experts.scalar_type() != at::kLong || leading(experts) != leading(tokens))
    misuse("the experts of tokens {} must be int64 of the same leading shape, got {}", describe(tokens), describe(experts));
}

// A dispatch or a combine. Between several ranks it has statistics: `bytes_sent` to other ranks, the sum over all ranks, forward
// and backward; `seconds` of a rank's thread, the mean over ranks. The counts of rows that all_to_all sends before the rows, 8
// bytes per expert, are left out.
class TokenExchange : public ExchangeLayer, public LayerExtras {
 public:
  explicit TokenExchange(const ExchangeOptions& options) : dispatcher_(make_dispatcher(options)) {}

  const ExchangeOptions& options() const { return dispatcher_->options(); }
  Stats report(const Stats& sums) const override {
    if (sums.empty()) return {};
    const at::Tensor& seconds = sums.at("seconds");
    return {{"bytes_sent", sums.at("bytes_sent")[0]}, {"seconds", seconds[0] / seconds[1]}};
  }
  std::vector<std::string> axes() const override {
    return options().ranks == 1 ? std::vector<std::string>() : std::vector<std::string>{options().axis};
  }
  TokenScope token_scope() const override { return options().capacity ? TokenScope::all : TokenScope::separate; }
  bool needs_equal_batches() const override { return options().padding && options().ranks > 1; }

 protected:
  std::vector<StatInfo> stats() const {
    if (options().ranks == 1) return {};
    return {{"bytes_sent", 1}, {"seconds", 2}};
  }

  // Throws Misuse if the layer was made for an axis of another mesh than the program's.
  void check_axis(Context& context) const {
    const int ranks = options().ranks == 1 ? 1 : context.comm(options().axis).size();
    if (ranks != options().ranks)
      misuse("it was made for {} along axis '{}', and the program's mesh has {}: make it with an axis of that mesh",
             counted(options().ranks, "rank"), options().axis, ranks);
  }

  const std::shared_ptr<const Dispatcher> dispatcher_;
};

class DispatchLayer final : public TokenExchange {
 public:
  using TokenExchange::TokenExchange;

  Started start(at::TensorList in, Context& context) override {
    check_tokens(in[0], in[1], options());
    if (in[0].is_meta()) return planned_dispatch(in[0], in[1], *dispatcher_, context);
    check_axis(context);
    Dispatched sent = dispatcher_->dispatch(in[0], in[1], context);
    const auto backward = [shape = in[0].sizes().vec(), like = in[0].options(), rows = sent.rows,
                           start_back = std::move(sent.backward)](at::TensorList gradients) {
      const at::Tensor result = at::empty(shape, like);
      return Exchanged{{result, {}}, start_back(as_rows(result), gradient_or_zeros(gradients[0], rows))};
    };
    return {{{sent.rows, sent.group_rows, sent.places, sent.traffic}, std::move(sent.work)}, backward};
  }

  std::optional<Started> join(at::TensorList, Context& context) override { return dispatcher_->join(context); }
  Io io() const override {
    return {.inputs = {"h", "route_experts"},
            .outputs = {{"rows"}, {"group_rows", false}, {"places", false}, {"traffic", false}},
            .losses = {},
            .stats = stats()};
  }
  // Returns a sentence about the rows that plans assume; empty for one rank without capacity.
  std::string assumption() const override {
    if (options().capacity) return "experts get as many rows as the capacity allows: no routing needs more memory";
    if (options().ranks == 1) return {};
    return fmt::format(
        "the experts of a rank get {:g} times the rows of balanced routing (planned_rows); without a capacity they may get up to {} "
        "times",
        options().planned_rows, options().ranks);
  }
  std::string kind() const override { return dispatcher_->kind_of("dispatch"); }
};

class CombineLayer final : public TokenExchange {
 public:
  using TokenExchange::TokenExchange;

  Started start(at::TensorList in, Context& context) override {
    if (in[0].is_meta()) {
      const at::Tensor result = result_of(in);
      return {{{result}, {}}, planned_combine(in, result, *dispatcher_, context)};
    }
    check_axis(context);
    const at::Tensor result = checked_result(in);
    const Returning returning{in[0].contiguous(), in[1], in[2], in[3], options().has_shared ? in[4] : at::Tensor()};
    Combined combined = dispatcher_->combine(as_rows(result), returning, context);
    const auto backward = [result, has_shared = options().has_shared,
                           start_back = std::move(combined.backward)](at::TensorList gradients) {
      const at::Tensor gradient = gradient_or_zeros(gradients[0], result);
      auto [of_rows, of_weights, work] = start_back(as_rows(gradient));
      Exchanged gone{{of_rows, of_weights, {}, {}}, std::move(work)};
      if (has_shared) gone.tensors.push_back(gradient);
      return gone;
    };
    return {{{result}, std::move(combined.work)}, backward};
  }

  // Starts with zeros for what is missing or does not fit. Returns no tensors if the dispatch before it was not completed.
  std::optional<Started> join(at::TensorList in, Context& context) override {
    const bool is_missing = in[3].numel() == 0;
    if (is_missing) return Started{};
    const ReturningSizes sizes = dispatcher_->sizes_of(in[2], in[3]);
    std::vector<at::Tensor> filled = in.vec();
    if (!are_rows(in[0], sizes)) filled[0] = at::zeros({sizes.rows, options().hidden}, in[0].options());
    if (!are_weights(in[1], sizes)) filled[1] = at::zeros({sizes.tokens, sizes.routes}, in[0].options());
    const at::Tensor result = result_of(filled);
    if (options().has_shared && !is_like(in[4], result)) filled[4] = at::zeros_like(result);
    return start(filled, context);
  }

  Io io() const override {
    Io io{.inputs = {"rows", "route_weights", "places", "traffic"}, .outputs = {{"h"}}, .losses = {}, .stats = stats()};
    if (options().has_shared) io.inputs.emplace_back("shared");
    return io;
  }
  // The outputs of a dispatch have a meaning for a combine of the same kind only, and others could hold anything.
  void check_sources(const std::vector<const Layer*>& sources) const override {
    const auto* dispatch = dynamic_cast<const DispatchLayer*>(sources[3]);
    if (!dispatch || sources[2] != sources[3])
      misuse("it needs the outputs `places` and `traffic` of one moe.dispatch: no other layer may output them between the two");
    const auto need = [](const char* option, const std::string& theirs, const std::string& own) {
      if (theirs == own) return;
      misuse("it has {} = {}, and the dispatch that sent the tokens has {}: give moe.dispatch and moe.combine the same", option,
             own, theirs);
    };
    const auto axis = [](const ExchangeOptions& of) { return fmt::format("'{}' of {}", of.axis, counted(of.ranks, "rank")); };
    const ExchangeOptions& theirs = dispatch->options();
    need("dispatcher", "'" + theirs.dispatcher + "'", "'" + options().dispatcher + "'");
    need("axis", axis(theirs), axis(options()));
    need("experts", std::to_string(theirs.experts), std::to_string(options().experts));
    need("hidden", std::to_string(theirs.hidden), std::to_string(options().hidden));
  }
  std::string kind() const override { return dispatcher_->kind_of("combine"); }

 private:
  bool are_rows(const at::Tensor& x, const ReturningSizes& sizes) const {
    return x.sizes() == at::IntArrayRef{sizes.rows, options().hidden};
  }
  static bool are_weights(const at::Tensor& x, const ReturningSizes& sizes) {
    return x.dim() > 0 && x.size(-1) == sizes.routes && x.numel() == sizes.tokens * sizes.routes;
  }
  static bool is_like(const at::Tensor& x, const at::Tensor& result) {
    return x.sizes() == result.sizes() && x.scalar_type() == result.scalar_type();
  }
  // Returns result_of(in). Throws Misuse if a layer between the dispatch and this one has changed the size of what the dispatch
  // expects back.
  at::Tensor checked_result(at::TensorList in) const {
    const ReturningSizes sizes = dispatcher_->sizes_of(in[2], in[3]);
    const auto refuse = [](const char* input, const std::string& needed, const at::Tensor& got) {
      misuse("it needs `{}` of {}, got {}", input, needed, describe(got));
    };
    if (!are_rows(in[0], sizes))
      refuse("rows", fmt::format("[{}, {}], one for each that the dispatch gave to the experts", sizes.rows, options().hidden),
             in[0]);
    if (!are_weights(in[1], sizes))
      refuse("route_weights", fmt::format("[..., {}] for {} tokens, one for each of `route_experts`", sizes.routes, sizes.tokens),
             in[1]);
    const at::Tensor result = result_of(in);
    if (options().has_shared && !is_like(in[4], result)) refuse("shared", describe(result) + ", as its sum has", in[4]);
    return result;
  }
  // Returns the output, not initialised.
  at::Tensor result_of(at::TensorList in) const {
    std::vector<int64_t> shape = in[1].sizes().vec();
    shape.back() = options().hidden;
    return at::empty(shape, in[0].options());
  }
};

}  // namespace

std::shared_ptr<Layer> make_dispatch(const ExchangeOptions& options) {
  return std::make_shared<DispatchLayer>(options);
}

std::shared_ptr<Layer> make_combine(const ExchangeOptions& options) {
  return std::make_shared<CombineLayer>(options);
}

}  // namespace zt::moe
