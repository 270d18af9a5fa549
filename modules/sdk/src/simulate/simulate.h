// Simulates the step of a plan.
#pragma once

#include "plan/plan.h"
#include "zt/simulate/simulation.h"

namespace zt {

// As zt::simulate, for a plan that has been made. Not collective.
std::shared_ptr<Simulation> simulate(const Plan& plan, const StepBatch& batch, const Costs& costs);

}  // namespace zt
