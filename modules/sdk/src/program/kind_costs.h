// What the actions of the SDK's kinds cost.
#pragma once

#include "zt/program/rank_program.h"

namespace zt {

// Kind::cost of the kinds of that name.
Cost reduce_grad_cost(const Action& action, const CostBasis& basis);
Cost replicate_grad_cost(const Action& action, const CostBasis& basis);
Cost reduce_tie_cost(const Action& action, const CostBasis& basis);
Cost unshard_cost(const Action& action, const CostBasis& basis);
Cost norm_cost(const Action& action, const CostBasis& basis);
Cost step_cost(const Action& action, const CostBasis& basis);
Cost gather_tensors_cost(const Action& action, const CostBasis& basis);
Cost scatter_tensors_cost(const Action& action, const CostBasis& basis);

}  // namespace zt
