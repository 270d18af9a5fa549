// Inserts UNSHARD before uses of sharded parameters, and RESHARD after them. Uses follow from the resources that actions declare.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "zt/program/program.h"

namespace zt::zero {

struct Residency {
  const std::vector<UnitPlan>& plans;  // by unit
  bool waits = false;                  // the executor waits for each gather before the next action
  int prefetch = 1;                    // number of units by which a unit is gathered ahead of its use
  int64_t max_reuse_distance = 0;  // a unit stays whole if at most this many elements of other units are used before its next use
  bool keeps_forward = false;      // a unit stays whole from a micro-batch's forward to its backward
  int64_t max_live = 0;            // bound of the elements that are whole at the same time, which delays gathers; 0: no bound
};

// Pure. Units whose parameters are sharded are gathered along their shard_axes. Throws Misuse if `max_live` is too small for the
// units that one action uses and those that stay whole.
std::vector<Action> insert_residency(std::vector<Action> actions, const ModelInfo& model, const Residency& residency);

}  // namespace zt::zero
