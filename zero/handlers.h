// Handlers of REDUCE_GRAD and UNSHARD. They keep no state of a run: where things are communicated is in the action's axes, what
// is sharded in the unit's layout.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "zt/execute/executor.h"

namespace zt::zero {

// REDUCE_GRAD: sums `grad` over the axis in place. A sharded unit gets the sum in `grad_shard` (its part of `grad`; the rest
// of `grad` is undefined then), others in all of `grad`. With sum = first, middle, last the parts accumulate in `grad_sum`,
// and the last one puts the total where the sum would be.
// With dtype it is sent in that type, by way of
// StepState::wire, and the sum is rounded to it.
// REPLICATE_GRAD: sums `grad_shard` over the axis.
// UNSHARD: gathers all ranks' `shard` into `full`, or waits until all have written theirs where `full` is the node's.
// Both return work in flight.
std::vector<std::pair<KindId, std::shared_ptr<ActionHandler>>> make_handlers();

}  // namespace zt::zero
