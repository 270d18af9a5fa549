// Where REDUCE_GRAD, or what takes its place, puts the sum over ranks of a unit's gradient.
#pragma once

#include <ATen/core/Tensor.h>

#include "zt/execute/executor.h"

namespace zt {

// Returns whether each rank gets its part of the sum only: the unit has shards, or its gradient is in a slot.
bool sums_parts(const Unit& unit);
// Returns the tensor for the sum over ranks of this part of the step's gradient: [padded], or [chunk] if sums_parts. It is a view
// of the unit's buffers, which may be the gradient itself.
at::Tensor summed_part(const Unit& unit, GradientPart part);
// Adds what summed_part holds to the sum over micro-batches, which ends in `grad_shard`. Not for GradientPart::whole.
void accumulate(Unit& unit, GradientPart part);

// Between parameters, in padding at the end of their room, and in frozen ones there is no gradient: gives `flat`, of which the
// first element is element `first` of the unit, zeros there. NORM counts these places, too.
void clear_gaps(const StepState& state, int unit, const at::Tensor& flat, int64_t first);

}  // namespace zt
