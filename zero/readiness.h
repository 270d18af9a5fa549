// When units are ready to be communicated, found from the resources that actions declare, of unknown kinds too.
#pragma once

#include <vector>

#include "zt/program/program.h"

namespace zt::zero {

struct Ready {
  int unit = 0;
  int after = 0;  // index of the action that makes it ready
  GradientPart part = GradientPart::whole;
  int round = 0;  // how many parts of this unit come before it
};

// Where each unit of `units` is written as `resource` for the last time, ascending by action, then by unit.
std::vector<Ready> last_writes(const std::vector<Action>& actions, const ModelInfo& model, ResourceKind resource,
                               const std::vector<bool>& units);

// Where each unit's gradient is complete for one micro-batch after the other. Misuse when the micro-batches of a unit are
// interleaved, so that there is no such place.
std::vector<Ready> micro_batch_gradients(const std::vector<Action>& actions, const ModelInfo& model,
                                         const std::vector<bool>& units);

}  // namespace zt::zero
