#include "routing/router.h"

#include <ATen/ATen.h>

#include <array>

#include "routing/losses.h"
#include "routing/noise.h"
#include "routing/routes.h"
#include "routing/selection.h"
#include "routing/sigmoid.h"
#include "zt/base/error.h"
#include "zt/base/rows.h"
#include "zt/base/tensor.h"
#include "zt/gemm/gemm_choice.h"

namespace zt::moe {

namespace {

std::shared_ptr<Param> make_weight(const char* name, const RouterOptions& options) {
  return make_param(name, {options.experts, options.hidden}, init_normal(0, options.std), true, {"experts", "hidden"});
}

class Router final : public Layer, public LayerExtras {
 public:
  explicit Router(RouterOptions options)
      : options_(std::move(options)),
        selection_(make_selection(options_)),
        weight_(make_weight("weight", options_)),
        cut_(options_.token_cut()) {
    if (options_.noise == Noise::noisy_top_k) noise_ = make_weight("noise", options_);
  }

  std::vector<at::Tensor> forward(at::TensorList in, Context& context) override {
    const at::Tensor& h = in[0];
    if (h.dim() != 3 || h.size(2) != options_.hidden) misuse("takes [samples, tokens, {}], got {}", options_.hidden, describe(h));
    const TokenShape shape{h.size(0), h.size(1), selection_->routes(options_)};
    const at::Tensor logits = logits_of(h, context);
    const at::Tensor scores = options_.score == Score::sigmoid ? sigmoid_by_element(logits) : logits.softmax(-1);
    const at::Tensor counted = h.is_meta() ? at::Tensor() : counted_tokens(shape.samples, shape.tokens, options_.mask, context);
    at::Tensor experts = experts_of({logits, scores, counted, shape.samples, shape.tokens, shape.width}, context);
    const at::Tensor load = load_of(experts, shape.samples, counted);
    const at::Tensor balanced = options_.losses.of == BalancedRoutes::first
                                    ? load_of(experts.narrow(1, 0, 1).contiguous(), shape.samples, counted)
                                    : load;
    at::Tensor weights = weights_of(logits, scores, experts);
    drop(experts, weights, counted, shape, context);
    const at::Tensor probabilities = options_.score == Score::sigmoid ? normalised(scores) : scores;
    Routed routed{logits, probabilities, load, balanced, counted, shape.samples};
    if (has_cut_tokens(context) && options_.has_losses()) sum_samples(routed, token_cut()->axis, context);
    add_losses(routed, context);
    if (!h.is_meta()) add_statistics(routed, context);
    const std::array of_routes{shape.samples, shape.tokens, shape.width};
    return {weights.view(of_routes), experts.view(of_routes)};
  }

  // Losses are sums over samples.
  bool needs_whole_samples() const override { return !cut_ && (options_.needs_whole_samples() || options_.has_losses()); }
  Params params() const override { return noise_ ? std::vector{weight_, noise_} : std::vector{weight_}; }
  Io io() const override {
    Io io{.inputs = {"h"}, .outputs = {{"route_weights"}, {"route_experts", false}}};
    const bool adds_over_tokens = cut_.has_value();
    if (options_.losses.balance > 0) io.losses.push_back({"balance", Per::sample, adds_over_tokens});
    if (options_.losses.z > 0) io.losses.push_back({"z_loss", Per::sample, adds_over_tokens});
    io.stats = {{"load", options_.experts}, {"dropped", 1}, {"tokens", 1}, {"entropy", 1}, {"logits", 1}};
    if (options_.has_bias) io.stats.push_back({"bias", 1});
    return io;
  }
  std::vector<std::string> gives_up() const override { return options_.given_up(); }
  std::vector<std::string> axes() const override {
    std::vector<std::string> all;
    if (options_.losses.balance > 0 && options_.losses.per == BalanceOver::batch) all = options_.batch_axes;
    if (cut_ && options_.has_losses()) all.push_back(cut_->axis);
    return all;
  }
  std::vector<std::string> batch_axes() const override {
    return options_.losses.balance > 0 && options_.losses.per == BalanceOver::batch ? axes() : std::vector<std::string>();
  }
  std::optional<TokenCut> token_cut() const override { return cut_; }
  void check_batch(const BatchField& batch, Mode) const override { selection_->check_batch(options_, batch); }
  std::vector<LayerBuffer> buffers() const override {
    return options_.has_bias ? std::vector<LayerBuffer>{{"bias", at::zeros({options_.experts}, at::kFloat)}}
                             : std::vector<LayerBuffer>();
  }
  bool has_update() const override { return options_.has_bias; }
  // Raises the bias of experts with less than the mean load, and lowers that of the others.
  void update(const Stats& stats, const LayerBuffers& buffers) override {
    const at::Tensor& load = stats.at("load");
    const at::Tensor bias = buffers.at("bias");
    bias.add_(load.mean().sub(load).sign().to(bias.options()), options_.bias_rate);
  }
  Stats report(const Stats& sums) const override { return routing_report(sums); }
  TokenScope token_scope() const override { return options_.treats_tokens_apart() ? TokenScope::separate : TokenScope::all; }
  std::string kind() const override { return "router"; }

 private:
  at::Tensor load_of(const at::Tensor& experts, int64_t samples, const at::Tensor& counted) const {
    if (experts.is_meta()) return at::empty({samples, options_.experts}, experts.options().dtype(at::kDouble));
    return load_by_sample(experts, samples, options_.experts, counted);
  }

  // Returns the logits [samples * tokens, experts], in float32 at least.
  at::Tensor logits_of(const at::Tensor& h, Context& context) const {
    const at::ScalarType dtype = wide_dtype(h.scalar_type());
    at::Tensor rows = h.reshape({-1, options_.hidden}).to(dtype);
    const bool has_noise = context.mode == Mode::train && !h.is_meta();
    const TokenShape of_rows{h.size(0), h.size(1), options_.hidden}, of_logits{h.size(0), h.size(1), options_.experts};
    if (has_noise && options_.jitters()) rows = rows * jitter_factors(of_rows, options_.jitter, context).to(rows);
    at::Tensor logits = linear_by_scope(rows, context.param(*weight_).to(dtype));
    if (!noise_) return logits;
    const at::Tensor width = at::softplus(linear_by_scope(rows, context.param(*noise_).to(dtype)));
    return has_noise ? logits + normal_noise(of_logits, context).to(logits) * width : logits + width * 0;
  }

  // Returns the experts [samples * tokens, routes]. Writes nothing to a graph.
  at::Tensor experts_of(const Candidates& candidates, Context& context) const {
    const at::Tensor& logits = candidates.logits;
    if (logits.is_meta()) return at::empty({logits.size(0), candidates.routes}, logits.options().dtype(at::kLong));
    if (const auto kept = extras_of(context).kept(); !kept.empty()) return kept[0].clone();
    at::Tensor experts = selection_->select(candidates, context);
    extras_of(context).keep({experts.clone()});
    return experts;
  }

  // Returns the weights [tokens, routes] of the experts; 0 in empty routes.
  at::Tensor weights_of(const at::Tensor& logits, const at::Tensor& scores, const at::Tensor& experts) const {
    const at::Tensor used = experts.to(scores.device());
    const at::Tensor index = used.is_meta() ? used : used.clamp_min(0);
    at::Tensor weights = options_.softmax_after ? logits.gather(1, index).softmax(-1) : scores.gather(1, index);
    if (!used.is_meta()) weights = weights.masked_fill(used.lt(0), 0);
    const bool keeps_all = options_.normalise == Normalise::kept && !options_.capacity;
    if (options_.normalise == Normalise::selected || keeps_all) weights = normalised(weights);
    return options_.scale == 1 ? weights : weights * options_.scale;
  }

  static at::Tensor normalised(const at::Tensor& weights) { return weights / (weights.sum(-1, true) + 1e-20); }

  // Empties the routes of experts without room.
  void drop(at::Tensor& experts, at::Tensor& weights, const at::Tensor& counted, const TokenShape& shape,
            Context& context) const {
    if (!options_.capacity || selection_->fits_capacity() || experts.is_meta()) return;
    const bool per_sample = options_.capacity->per == RoomOf::sample;
    const int64_t parts = per_sample ? shape.samples : 1, tokens = per_sample ? shape.tokens : shape.samples * shape.tokens;
    Room room{.samples = parts, .experts = options_.experts, .counted = counted};
    room.rows = options_.capacity->rows(context.mode == Mode::train, tokens, shape.width, options_.experts);
    if (options_.capacity->keep == KeptTokens::probability) room.ranking = weights.detach().cpu();
    if (options_.capacity->keep == KeptTokens::random) room.ranking = uniform_noise(shape, context);
    room.is_by_choice = options_.capacity->places == Places::by_choice;
    const int64_t dropped = drop_above(experts, room);
    context.stat("dropped", at::scalar_tensor(dropped, at::kDouble));
    weights = weights.masked_fill(experts.to(weights.device()).lt(0), 0);
    if (options_.normalise == Normalise::kept) weights = normalised(weights) * options_.scale;
  }

  void add_losses(const Routed& routed, Context& context) const {
    if (options_.losses.balance > 0)
      context.loss("balance", balance_loss(routed, options_, context) * options_.losses.balance, Per::sample);
    if (options_.losses.z > 0) context.loss("z_loss", z_loss(routed) * options_.losses.z, Per::sample);
  }

  // The statistics are sums over the tokens that count, for routing_report. That of the logits also finds those that are not
  // finite.
  void add_statistics(const Routed& routed, Context& context) const {
    const at::Tensor logits = routed.logits.detach();
    extras_of(context).watch("logits", logits.view({routed.samples, -1, options_.experts}));
    if (context.recompute) return;
    const auto counted = [&](const at::Tensor& of_tokens) {
      return routed.counted.defined() ? of_tokens.index({routed.counted.to(of_tokens.device())}) : of_tokens;
    };
    const at::Tensor probabilities = counted(routed.probabilities.detach()).to(at::kDouble);
    const auto tokens = static_cast<double>(probabilities.size(0));
    context.stat("load", routed.load.sum(0));
    context.stat("tokens", at::scalar_tensor(tokens, at::kDouble));
    context.stat("entropy", probabilities.clamp_min(1e-30).log().mul(probabilities).sum().neg());
    const at::Tensor all = counted(logits).flatten().to(at::kDouble);
    context.stat("logits", all.dot(all).div(options_.experts));
    if (options_.has_bias) context.stat("bias", extras_of(context).buffer("bias").to(at::kDouble).square().sum().mul(tokens));
  }

  RouterOptions options_;
  std::shared_ptr<const Selection> selection_;
  std::shared_ptr<Param> weight_, noise_;  // `noise_` may be null
  std::optional<TokenCut> cut_;
};

}  // namespace

std::shared_ptr<Layer> make_router(const RouterOptions& options) {
  return std::make_shared<Router>(options);
}

}  // namespace zt::moe
