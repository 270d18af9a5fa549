// Handlers of the kinds that every program has: COUNT, F, R, B, NORM, STEP.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "execute/step/layer_runs.h"
#include "zt/execute/executor.h"
#include "zt/model/optimizer.h"

namespace zt {

// Returns the handlers. `updates`: by unit, the segments of this rank's shard.
Executor::Handlers step_handlers(const std::shared_ptr<LayerRuns>& layers, std::shared_ptr<const Optimizer> optimizer,
                                 std::vector<std::vector<Segment>> updates);

// NORM: sums losses, statistics and the gradient norm over all ranks and tells them of a failure.
Work start_norm(const Action& action, StepParts& parts, StepState& state);

// Returns the axes over which NORM adds losses and statistics, one after the other: those along which ranks run different
// positions, where each number comes from one rank, and then the others, in the order that the sum has without a pipeline.
// Neither list is empty.
std::vector<std::vector<std::string>> summed_in_turn(const std::vector<std::string>& axes,
                                                     const std::vector<std::string>& split_axes);

}  // namespace zt
