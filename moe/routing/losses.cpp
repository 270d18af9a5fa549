#include "routing/losses.h"

#include <ATen/ATen.h>

namespace zt::moe {

namespace {

// Returns the counted tokens as 1 and the others as 0, like `values` [tokens, ...], to multiply them.
at::Tensor factors(const Routed& routed, const at::Tensor& values) {
  return routed.counted.to(values.device(), values.scalar_type()).view({routed.samples, -1, 1});
}

// Returns [samples, n]: the means of values [tokens, n] over each sample's tokens.
at::Tensor means_by_sample(const at::Tensor& values, const Routed& routed) {
  const at::Tensor of_tokens = values.view({routed.samples, -1, values.size(1)});
  if (!routed.counted.defined()) return of_tokens.mean(1);
  const at::Tensor counted = factors(routed, values);
  return of_tokens.mul(counted).sum(1) / counted.sum(1).clamp_min(1);
}

// The sums over a micro-batch and those of other ranks.
struct Whole {
  at::Tensor load;  // [experts]
  double samples = 0, counted = 0, tokens = 0;
};

// Sums over the ranks with other tokens, for losses per batch.
Whole whole_of(const Routed& routed, const RouterOptions& options, Context& context) {
  const at::Tensor load = routed.balanced.sum(0);
  if (load.is_meta()) return {load};
  const auto tokens = static_cast<double>(routed.probabilities.size(0));
  const double counted = routed.counted.defined() ? routed.counted.sum().item<double>() : tokens;
  const at::Tensor numbers = at::tensor({static_cast<double>(routed.samples), counted, tokens}, at::kDouble);
  const at::Tensor sums = at::cat({load, numbers});
  if (options.losses.per == BalanceOver::batch) {
    for (const std::string& axis : options.batch_axes) context.control(axis).all_reduce(sums, sums).synchronize();
  }
  const auto* last = sums.const_data_ptr<double>() + load.numel();
  return {sums.narrow(0, 0, load.numel()), last[0], last[1], last[2]};
}

}  // namespace

at::Tensor balance_loss(const Routed& routed, const RouterOptions& options, Context& context) {
  const at::Tensor& probabilities = routed.probabilities;
  const int64_t experts = probabilities.size(1);
  const auto shares = [&](const at::Tensor& load) {
    return load.div(load.sum(-1, true).clamp_min(1)).to(probabilities.device(), probabilities.scalar_type());
  };
  if (options.losses.per == BalanceOver::sample)
    return means_by_sample(probabilities, routed).mul(shares(routed.balanced)).sum() * experts;
  const Whole whole = whole_of(routed, options, context);
  at::Tensor mean = probabilities.view({routed.samples, -1, experts});  // times the samples: the part of these tokens
  if (whole.counted == whole.tokens) {
    mean = mean.mean(1).sum(0);
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

}  // namespace zt::moe
