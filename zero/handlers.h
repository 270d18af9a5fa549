// Handlers of REDUCE_GRAD, REPLICATE_GRAD, UNSHARD and RESHARD. They keep no state between steps: an action's axes say which
// ranks communicate, and a unit's layout says how it is sharded.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "zt/execute/executor.h"

namespace zt::zero {

// Returns the handlers:
//   REDUCE_GRAD     sums `grad` over the axis. A sharded unit gets its part of the sum in `grad_shard`, and the rest of `grad` is
//                   undefined then; another unit gets the whole sum in `grad`. With sum = first, middle and last, the sums of
//                   micro-batches are accumulated, and `last` leaves the total in the same place. With dtype, gradients are
//                   sent in that type from the buffer StepState::wire, and the sum is rounded to it.
//   REPLICATE_GRAD  sums `grad_shard` over the axis.
//   UNSHARD         gathers the `shard` of all ranks into `full`. With node_shared, waits until all ranks have written theirs.
//   RESHARD         does nothing.
// All but the barrier of node_shared return work in flight.
std::vector<std::pair<KindId, std::shared_ptr<ActionHandler>>> make_handlers();

}  // namespace zt::zero
