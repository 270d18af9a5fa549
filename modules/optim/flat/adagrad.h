// Adagrad: each element's rate falls with the sum of its squared gradients.
#pragma once

#include <memory>

#include "flat_optimizer.h"
#include "zt/base/value.h"

namespace zt::optim {

// Method: Duchi et al., "Adaptive Subgradient Methods for Online Learning and Stochastic Optimization", 2011, as
// torch.optim.Adagrad computes it. Options {lr, lr_decay = 0, initial_accumulator_value = 0, eps = 1e-10, weight_decay = 0 (L2),
// decay_all, groups}. Throws Misuse if an option is out of range.
std::shared_ptr<Optimizer> make_adagrad(const Value& options, Isa isa = best_isa());

}  // namespace zt::optim
