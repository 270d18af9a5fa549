// What the ranks of a plan communicate over.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "plan/plan.h"

namespace zt {

// Returns the axes over which these programs communicate, or a trainer with them does between their runs. `programs`: of all
// ranks.
AxesSet joined_axes(const ModelInfo& model, const std::vector<std::shared_ptr<const RankProgram>>& programs);
// Returns the axes whose ranks together run a program and wait for each other in it; none if they do not wait. Equal on all
// ranks, also for a stage without layers.
std::vector<std::string> axes_of_run(const Plan& plan, const RankProgram& program);
// As Trainer's function of this name.
std::vector<std::string> idle_axes(const Plan& plan);
// Returns what this rank communicates over.
LinkNeeds link_needs(const Plan& plan);

}  // namespace zt
