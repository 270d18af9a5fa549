// These functions find which tokens count in a step, and add the router's auxiliary losses and statistics to the step.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <string>

#include "routing/router_options.h"
#include "zt/model/layer.h"
#include "zt/model/layer_extras.h"

namespace zt::moe {

// Returns bool [samples * tokens] in host memory; undefined if all tokens count. `mask` names a batch field [samples, tokens]
// with a number other than 0 (or true) for tokens that count. "none": all count. Empty: the field `loss_mask`; without it those
// of which the field `padding`, from data.documents, is false; without both, all count. Throws Misuse if the field is missing or
// of another shape.
at::Tensor counted_tokens(int64_t samples, int64_t tokens, const std::string& mask, Context& context);

// What the losses need of whole samples if this rank has some of their tokens only: sums over the ranks that have the others.
struct WholeSamples {
  int64_t tokens = 0;  // of a sample
  at::Tensor counted;  // float64 [samples]: the tokens that count
};

// The result of routing, on which the losses depend. Tokens are [samples * tokens per sample, ...].
struct Routed {
  at::Tensor logits;         // [tokens, experts], with a graph
  at::Tensor probabilities;  // [tokens, experts], with a graph; the rows sum to 1
  at::Tensor load;           // float64 [samples, experts]: routes per expert, before any token was dropped
  at::Tensor balanced;       // the same of the routes that RouterLossOptions::of names; of whole samples
  at::Tensor counted = {};   // bool [tokens], in host memory: the tokens that count, here and in the loads; undefined: all
  int64_t samples = 1;
  std::optional<WholeSamples> whole = {};  // if tokens are cut over ranks
};

// Completes `balanced` and sets `whole` by sums over the axis whose ranks have other tokens of the samples.
void sum_samples(Routed& routed, const std::string& axis, Context& context);

// The losses are sums over samples, to be divided by the number of samples of the global batch. If tokens are cut, each is this
// rank's part: the sum over its tokens.
//
// Returns the balancing loss: experts * sum over experts of f P, where f is an expert's share of the routes that count, and P the
// mean of its probability, over the tokens of a sample, of all ranks' micro-batches with this number ("batch": the loads are
// summed over the axes), or of this micro-batch. It is 1 for balanced routing. Multiplied by the number of samples that it stands
// for. Means are over the tokens that count.
at::Tensor balance_loss(const Routed& routed, const RouterOptions& options, Context& context);
// Returns the mean over a sample's tokens that count of the squared log-sum-exp of the logits, summed over samples.
at::Tensor z_loss(const Routed& routed);

// `sums`: over the tokens of a step, all float64: load [experts] (routes per expert, before any are dropped), dropped (routes),
// tokens, entropy (of the probabilities, in nats), logits (mean square over experts) and, with a bias, bias (its squared L2
// norm). Returns
//   load, dropped, tokens   the sums
//   load_max_over_mean      the largest load divided by the mean load
//   load_cv                 the coefficient of variation: the standard deviation of the load divided by its mean
//   idle_experts            experts without a token
//   dropped_share           dropped routes divided by all routes
//   entropy                 the mean over tokens
//   logit_rms               the root of the mean square
//   bias_norm               the L2 norm of the bias
// Quotients of a step without routes are 0. All are numbers, load is a list. Empty if `sums` is.
Stats routing_report(const Stats& sums);

}  // namespace zt::moe
