// Stochastic gradient descent with momentum.
#pragma once

#include <memory>

#include "flat_optimizer.h"
#include "zt/base/value.h"

namespace zt::optim {

// Options {lr, momentum = 0, dampening = 0, nesterov = false, weight_decay = 0 (L2), decay_all, groups}, as in PyTorch. The
// momentum buffer exists only if momentum > 0; after the first step it equals the gradient. Throws Misuse if an option is out of
// range, or for nesterov without momentum or with dampening.
std::shared_ptr<Optimizer> make_sgd(const Value& options, Isa isa = best_isa());

}  // namespace zt::optim
