// Muon: momentum whose matrices are made orthogonal; AdamW for all that is no matrix.
#pragma once

#include <memory>

#include "zt/base/isa.h"
#include "zt/base/value.h"
#include "zt/model/optimizer.h"

namespace zt::optim {

// Method: Jordan et al., "Muon: An optimizer for hidden layers in neural networks", 2024, as torch.optim.Muon computes it.
// Options {lr, momentum = 0.95, nesterov = true, ns_steps = 5, ns_coefficients = {3.4445, -4.775, 2.0315}, eps = 1e-7, ns_dtype =
// "bf16", adjust_lr = "original", weight_decay = 0.1 (decoupled), adamw = {match = "embed|head", lr, betas = {0.9, 0.999}, eps =
// 1e-8, weight_decay}, decay_all, groups}. A tensor with more than two dims is a batch of matrices. With float64 parameters the
// products are in float64. Throws Misuse if an option is out of range.
std::shared_ptr<Optimizer> make_muon(const Value& options, Isa isa = best_isa());

}  // namespace zt::optim
