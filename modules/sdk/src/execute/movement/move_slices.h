// FETCH and EVICT: slices of units on their way between the device's memory and other memories.
#pragma once

#include "zt/execute/executor.h"

namespace zt {

// Start the actions of these kinds.
Work start_fetch(const Action& action, StepState& state);
Work start_evict(const Action& action, StepState& state);

// Gives up the slices that were brought and not taken back: after a failure, or a part of a program in which nothing has changed
// them. No transfer may be under way.
void drop_slices(StepState& state);

}  // namespace zt
