// Handlers of the kinds that every program has: COUNT, F, R, B, NORM, STEP.
#pragma once

#include <memory>

#include "execute/step/layer_runs.h"
#include "zt/execute/executor.h"
#include "zt/model/optimizer.h"

namespace zt {

// Returns the handlers. `updates`: by unit, the segments of this rank's shard.
Executor::Handlers step_handlers(std::shared_ptr<LayerRuns> layers, std::shared_ptr<const Optimizer> optimizer,
                                 std::vector<std::vector<Segment>> updates);

}  // namespace zt
