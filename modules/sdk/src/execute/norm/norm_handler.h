// The handler of NORM, which sums losses, statistics and the gradient norm over all ranks and tells them of a failure.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "execute/step/step_parts.h"
#include "zt/execute/executor.h"

namespace zt {

// Returns the axes over which NORM adds losses and statistics, one after the other: those along which ranks run different
// positions, where each number comes from one rank, and then the others, in the order that the sum has without a pipeline.
// Neither list is empty.
std::vector<std::vector<std::string>> summed_in_turn(const std::vector<std::string>& axes,
                                                     const std::vector<std::string>& split_axes);

// The handler refers to `parts`.
std::shared_ptr<ActionHandler> norm_handler(StepParts& parts);

}  // namespace zt
