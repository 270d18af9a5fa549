#include "routing/losses.h"

#include <ATen/ATen.h>

namespace zt::moe {

namespace {

// Sums the loads over the ranks with other tokens.
at::Tensor load_of_batch(const at::Tensor& load, const RouterOptions& options, Context& context) {
  const at::Tensor sum = load.sum(0).contiguous();
  if (load.is_meta()) return sum;
  for (const std::string& axis : options.batch_axes) context.control(axis).all_reduce(sum, sum).synchronize();
  return sum;
}

}  // namespace

at::Tensor balance_loss(const Routed& routed, const RouterOptions& options, Context& context) {
  const int64_t experts = routed.probabilities.size(1), samples = routed.samples;
  const at::Tensor means = routed.probabilities.view({samples, -1, experts}).mean(1);  // [samples, experts]
  const auto shares = [&](const at::Tensor& load) {
    return load.div(load.sum(-1, true).clamp_min(1)).to(means.device(), means.scalar_type());
  };
  if (options.losses.per == "sample") return means.mul(shares(routed.balanced)).sum() * experts;
  const at::Tensor load =
      options.losses.per == "batch" ? load_of_batch(routed.balanced, options, context) : routed.balanced.sum(0);
  return means.sum(0).mul(shares(load)).sum() * experts;  // samples * mean over samples
}

at::Tensor z_loss(const Routed& routed) {
  const at::Tensor log_sums = (routed.logits - routed.logits.log_softmax(-1)).select(1, 0);  // equal in all columns
  return log_sums.square().view({routed.samples, -1}).mean(1).sum();
}

}  // namespace zt::moe
