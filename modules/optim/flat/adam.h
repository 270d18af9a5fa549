// Adam with L2 regularisation, and AdamW with decoupled weight decay.
#pragma once

#include <memory>

#include "flat_optimizer.h"
#include "zt/base/value.h"

namespace zt::optim {

// Options {lr, betas = {0.9, 0.999}, eps = 1e-8, weight_decay, decay_all, groups}; the defaults are PyTorch's:
// weight_decay 0.01 for AdamW, 0 for Adam. Throws Misuse if an option is out of range.
std::shared_ptr<Optimizer> make_adamw(const Value& options, Isa isa = best_isa());
std::shared_ptr<Optimizer> make_adam(const Value& options, Isa isa = best_isa());

}  // namespace zt::optim
