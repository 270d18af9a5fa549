#include "routing/losses.h"

#include <ATen/ATen.h>

#include <cmath>

#include "routing/token_axis.h"
#include "zt/base/error.h"
#include "zt/base/tensor.h"

namespace zt::moe {

namespace {

// Returns the counted tokens as 1 and the others as 0, like `values` [tokens, ...], to multiply them.
at::Tensor factors(const Routed& routed, const at::Tensor& values) {
  return routed.counted.to(values.device(), values.scalar_type()).view({routed.samples, -1, 1});
}

// Returns [samples, n]: the means of values [tokens, n] over each sample's tokens; if tokens are cut, this rank's part of them.
at::Tensor means_by_sample(const at::Tensor& values, const Routed& routed) {
  const at::Tensor of_tokens = values.view({routed.samples, -1, values.size(1)});
  if (!routed.counted.defined() && !routed.whole) return of_tokens.mean(1);
  const at::Tensor counted = routed.counted.defined() ? factors(routed, values) : at::Tensor(),
                   sums = counted.defined() ? of_tokens.mul(counted).sum(1) : of_tokens.sum(1);
  if (!routed.whole) return sums / counted.sum(1).clamp_min(1);
  return sums / routed.whole->counted.to(values.device(), values.scalar_type()).clamp_min(1).unsqueeze(1);
}

// The sums over a micro-batch and those of other ranks.
struct WholeBatch {
  at::Tensor load;  // [experts]
  double samples = 0, counted = 0, tokens = 0;
};

// Returns the number of tokens of this rank's samples that count.
double counted_in(const Routed& routed, double tokens) {
  if (routed.whole) return routed.whole->counted.sum().item<double>();
  return routed.counted.defined() ? routed.counted.sum().item<double>() : tokens;
}

// Sums over the ranks with other samples, for losses per batch.
WholeBatch whole_of(const Routed& routed, const RouterOptions& options, Context& context) {
  const at::Tensor load = routed.balanced.sum(0);
  const auto of_axes = options.losses.per == BalanceOver::batch ? options.batch_axes : std::vector<std::string>();
  if (load.is_meta()) {
    const at::Tensor sums = at::empty({load.numel() + 3}, load.options());
    for (const std::string& axis : of_axes) sum_along(axis, sums, context);
    return {load};
  }
  const auto tokens = static_cast<double>(routed.whole ? routed.samples * routed.whole->tokens : routed.probabilities.size(0));
  const at::Tensor numbers = at::tensor({static_cast<double>(routed.samples), counted_in(routed, tokens), tokens}, at::kDouble);
  const at::Tensor sums = at::cat({load, numbers});
  for (const std::string& axis : of_axes) sum_along(axis, sums, context);
  const auto* last = sums.const_data_ptr<double>() + load.numel();
  return {sums.narrow(0, 0, load.numel()), last[0], last[1], last[2]};
}

// Returns where the batch field, [samples, tokens], is not 0.
at::Tensor nonzero_places(at::IntArrayRef shape, const std::string& field, Context& context) {
  const at::Tensor values = context.batch(field);
  if (values.sizes() != shape)
    misuse(
        "the batch field '{}' says which tokens count, so it must be [{}, {}], one number per token, got {}: give the router "
        "another field by `mask`, or mask = \"none\"",
        field, shape[0], shape[1], describe(values));
  return values.cpu().ne(0).flatten();
}

at::Tensor given_tokens(at::IntArrayRef shape, const std::string& mask, Context& context) {
  if (!mask.empty()) return nonzero_places(shape, mask, context);
  if (context.has_batch("loss_mask")) return nonzero_places(shape, "loss_mask", context);
  return context.has_batch("padding") ? nonzero_places(shape, "padding", context).logical_not() : at::Tensor();
}

double quotient(double a, double b) {
  return b == 0 ? 0 : a / b;
}

at::Tensor number(double value) {
  return at::scalar_tensor(value, at::kDouble);
}

}  // namespace

at::Tensor counted_tokens(int64_t samples, int64_t tokens, const std::string& mask, Context& context) {
  if (mask == "none") return {};
  const at::Tensor counted = given_tokens({samples, tokens}, mask, context);
  return counted.defined() && counted.all().item<bool>() ? at::Tensor() : counted;
}

void sum_samples(Routed& routed, const std::string& axis, Context& context) {
  const at::Tensor load = routed.balanced;
  const int64_t samples = routed.samples, tokens = routed.probabilities.size(0) / std::max<int64_t>(1, samples);
  const at::Tensor counted = routed.counted.defined() ? routed.counted.view({samples, -1}).sum(1, false, at::kDouble)
                                                      : at::full({samples}, static_cast<double>(tokens), load.options());
  const at::Tensor sums = at::cat({load, counted.unsqueeze(1)}, 1);
  sum_along(axis, sums, context);
  routed.balanced = sums.narrow(1, 0, load.size(1)).contiguous();
  routed.whole = WholeSamples{context.tokens().total, sums.select(1, load.size(1)).contiguous()};
}

at::Tensor balance_loss(const Routed& routed, const RouterOptions& options, Context& context) {
  const at::Tensor& probabilities = routed.probabilities;
  const int64_t experts = probabilities.size(1);
  const auto shares = [&](const at::Tensor& load) {
    return load.div(load.sum(-1, true).clamp_min(1)).to(probabilities.device(), probabilities.scalar_type());
  };
  if (options.losses.per == BalanceOver::sample)
    return means_by_sample(probabilities, routed).mul(shares(routed.balanced)).sum() * experts;
  const WholeBatch whole = whole_of(routed, options, context);
  at::Tensor mean = probabilities.view({routed.samples, -1, experts});  // times the samples: the part of these tokens
  if (whole.counted == whole.tokens) {
    mean = (routed.whole ? mean.sum(1) / routed.whole->tokens : mean.mean(1)).sum(0);
  } else {
    if (routed.counted.defined()) mean = mean.mul(factors(routed, probabilities));
    mean = mean.sum(at::IntArrayRef({0, 1})) * (whole.samples / std::max(whole.counted, 1.0));
  }
  return mean.mul(shares(whole.load)).sum() * experts;
}

at::Tensor z_loss(const Routed& routed) {
  const at::Tensor log_sums = (routed.logits - routed.logits.log_softmax(-1)).select(1, 0);  // equal in all columns
  return means_by_sample(log_sums.square().unsqueeze(1), routed).sum();
}

Stats routing_report(const Stats& sums) {
  if (sums.empty()) return {};
  const auto sum = [&](const char* name) { return sums.at(name).item<double>(); };
  const at::Tensor& load = sums.at("load");
  const double routes = load.sum().item<double>(), mean = routes / static_cast<double>(load.numel());
  const double deviation = std::sqrt(load.sub(mean).square().mean().item<double>()), tokens = sum("tokens");
  Stats shown{
      {"load", load},
      {"dropped", number(sum("dropped"))},
      {"tokens", number(tokens)},
      {"load_max_over_mean", number(quotient(load.max().item<double>(), mean))},
      {"load_cv", number(quotient(deviation, mean))},
      {"idle_experts", number(load.eq(0).sum().item<double>())},
      {"dropped_share", number(quotient(sum("dropped"), routes))},
      {"entropy", number(quotient(sum("entropy"), tokens))},
      {"logit_rms", number(std::sqrt(quotient(sum("logits"), tokens)))},
  };
  if (sums.contains("bias")) shown["bias_norm"] = number(std::sqrt(quotient(sum("bias"), tokens)));
  return shown;
}

}  // namespace zt::moe
