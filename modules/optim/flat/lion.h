// Lion: updates by the sign of an interpolated momentum.
#pragma once

#include <memory>

#include "flat_optimizer.h"
#include "zt/base/value.h"

namespace zt::optim {

// Method: Chen et al., "Symbolic Discovery of Optimization Algorithms", 2023, algorithm 2. Options {lr, betas = {0.9, 0.99},
// weight_decay = 0 (decoupled), decay_all, groups}. Throws Misuse if an option is out of range.
std::shared_ptr<Optimizer> make_lion(const Value& options, Isa isa = best_isa());

}  // namespace zt::optim
