// Allocates what a rank's Store holds.
#pragma once

#include <vector>

#include "plan/plan.h"

namespace zt {

// Gives the units, the layers' buffers and the send buffer of `state` their memory, and the parameters of the shards their
// initial values. `state` has the plan's units and links. Collective over the axes of the units. Throws OutOfMemory, with the
// unit, if there is not enough memory, and Misuse for initial values that do not fit.
void allocate_state(const Plan& plan, StepState& state);

}  // namespace zt
