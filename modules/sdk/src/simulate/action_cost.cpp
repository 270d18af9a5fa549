#include "action_cost.h"

#include "zt/base/tensor.h"
#include "zt/program/rank_program.h"

namespace zt {

Cost action_cost(const Action& action, const RehearsedAction& rehearsed, const CostBasis& basis) {
  if (role_of(action) == Role::compute) {
    Cost cost{.flops = rehearsed.flops, .memory_bytes = 2 * rehearsed.made, .sent_bytes = rehearsed.sent};
    for (const int unit : basis.model.positions[action.target].units)
      cost.memory_bytes += basis.units[unit].layout.numel * size_of(basis.program.precision.params);
    return cost;
  }
  if (message_of(action)) return {.memory_bytes = 2 * rehearsed.sent, .sent_bytes = rehearsed.sent};
  return cost_of(action, basis);
}

}  // namespace zt
