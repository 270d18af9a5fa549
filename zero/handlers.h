// Handlers of REDUCE_GRAD and UNSHARD. They keep no state: where things are communicated is in the action's axes, what is
// sharded in the unit's layout.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "zt/executor.h"

namespace zt::zero {

// REDUCE_GRAD: sums `grad` over the axis in place. A sharded unit gets the sum in `grad_shard` (its part of `grad`; the rest
// of `grad` is undefined then), others in all of `grad`. With sum = first, middle, last the parts accumulate in `grad_sum`,
// which is allocated when it is not there, and the last one puts the total where the sum would be.
// UNSHARD: gathers all ranks' `master` into `full`.
// Both return work in flight.
std::vector<std::pair<KindId, std::shared_ptr<ActionHandler>>> make_handlers();

}  // namespace zt::zero
