// The auxiliary losses of a router. All are sums over samples, to be divided by the number of samples of the global batch.
#pragma once

#include <ATen/core/Tensor.h>

#include "routing/router_options.h"
#include "zt/model/layer.h"

namespace zt::moe {

// The result of routing, on which the losses depend. Tokens are [samples * tokens per sample, ...].
struct Routed {
  at::Tensor logits;         // [tokens, experts], with a graph
  at::Tensor probabilities;  // [tokens, experts], with a graph; the rows sum to 1
  at::Tensor load;           // float64 [samples, experts]: routes per expert, before any token was dropped
  at::Tensor balanced;       // the same of the routes that RouterLossOptions::of names
  at::Tensor counted = {};   // bool [tokens], in host memory: the tokens that count, here and in the loads; undefined: all
  int64_t samples = 1;
};

// Returns the balancing loss: experts * sum over experts of f P, where f is an expert's share of the routes that count, and P the
// mean of its probability, over the tokens of a sample, of all ranks' micro-batches with this number ("batch": the loads are
// summed over the axes), or of this micro-batch. It is 1 for balanced routing. Multiplied by the number of samples that it stands
// for. Means are over the tokens that count.
at::Tensor balance_loss(const Routed& routed, const RouterOptions& options, Context& context);
// Returns the mean over a sample's tokens that count of the squared log-sum-exp of the logits, summed over samples.
at::Tensor z_loss(const Routed& routed);

}  // namespace zt::moe
