// Handlers of the kinds that every program has: COUNT, F, R, B, NORM, STEP and others.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "execute/step/layer_runs.h"
#include "execute/update/updater.h"
#include "zt/execute/executor.h"

namespace zt {

// Returns the handlers. `updater` is null where nothing is updated.
Executor::Handlers step_handlers(const std::shared_ptr<LayerRuns>& layers, const std::shared_ptr<Updater>& updater);

// NORM: sums losses, statistics and the gradient norm over all ranks and tells them of a failure.
Work start_norm(const Action& action, StepParts& parts, StepState& state);

// Returns the axes over which NORM adds losses and statistics, one after the other: those along which ranks run different
// positions, where each number comes from one rank, and then the others, in the order that the sum has without a pipeline.
// Neither list is empty.
std::vector<std::vector<std::string>> summed_in_turn(const std::vector<std::string>& axes,
                                                     const std::vector<std::string>& split_axes);

}  // namespace zt
