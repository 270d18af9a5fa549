// The numbers that the result of a step has for each router.
#pragma once

#include "zt/model/layer_extras.h"

namespace zt::moe {

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
