// Finds where units are ready to be communicated, from the resources that actions declare. This includes actions of kinds that
// zero does not know.
#pragma once

#include <vector>

#include "zt/program/rank_program.h"

namespace zt::zero {

struct ReadyUnit {
  int unit = 0;
  int after = 0;  // index of the action that makes the unit ready
  GradientPart part = GradientPart::whole;
  int round = 0;  // number of parts of this unit's gradient that come before this one
};

// Returns where the resource of each unit in `units` is written for the last time. Sorted by action, then by unit.
std::vector<ReadyUnit> last_writes(const std::vector<Action>& actions, const ModelInfo& model, ResourceId resource,
                                   const std::vector<bool>& units);

// Returns where each unit's gradient is complete for each micro-batch. Units with a parameter that several positions use are
// complete once per step: the sums of the uses are added then. Throws Misuse if the micro-batches of another unit are
// interleaved: then there is no such place.
std::vector<ReadyUnit> gradients_by_micro_batch(const std::vector<Action>& actions, const ModelInfo& model,
                                                const std::vector<bool>& units);

}  // namespace zt::zero
