// LAMB: Adam whose step is scaled, tensor by tensor, by the ratio of the norms of values and step.
#pragma once

#include <memory>

#include "zt/base/value.h"
#include "zt/model/optimizer.h"

namespace zt::optim {

// Method: You et al., "Large Batch Optimization for Deep Learning: Training BERT in 76 minutes", 2020, algorithm 2, with the
// bounds of the ratio of DeepSpeed. Options {lr, betas = {0.9, 0.999}, eps = 1e-8, bias_correction = true, min_coeff = 0.01,
// max_coeff = 10, weight_decay = 0, decay_all, groups}. Throws Misuse if an option is out of range.
std::shared_ptr<Optimizer> make_lamb(const Value& options);

}  // namespace zt::optim
