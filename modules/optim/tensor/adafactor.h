// Adafactor: the averaged square of a matrix's gradient is kept as averages of its rows and of its columns.
#pragma once

#include <memory>

#include "zt/base/value.h"
#include "zt/model/optimizer.h"

namespace zt::optim {

// Method: Shazeer and Stern, "Adafactor: Adaptive Learning Rates with Sublinear Memory Cost", 2018, as torch.optim.Adafactor
// computes it. Options {lr, beta2_decay = -0.8, eps1 = that of the master's dtype, eps2 = 1e-3, d = 1, weight_decay = 0
// (decoupled), decay_all, groups}. A tensor with more than two dims is a batch of matrices. Throws Misuse if an option is out of
// range.
std::shared_ptr<Optimizer> make_adafactor(const Value& options);

}  // namespace zt::optim
