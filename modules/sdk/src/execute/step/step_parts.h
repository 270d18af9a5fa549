// What the actions of a step share besides StepState.
#pragma once

#include <memory>
#include <vector>

#include "execute/step/forwards.h"
#include "execute/step/gradients.h"
#include "execute/step/layer_table.h"
#include "execute/step/micro_batches.h"
#include "execute/step/nonfinite_search.h"
#include "execute/step/step_scale.h"
#include "execute/step/step_stats.h"
#include "zt/execute/executor.h"

namespace zt {

struct StepParts {
  // `model`: the layers of `state.model`. `runs`: by position, whether this rank runs it; see positions_run.
  StepParts(const std::shared_ptr<const Model>& model, StepState& state, const std::vector<bool>& runs)
      : state(state),
        layers(model, state),
        batches(model, runs),
        stats(model, state, runs),
        gradients(*state.model, state.units, runs) {}

  StepState& state;
  Mode mode = Mode::train;
  LayerTable layers;
  MicroBatches batches;
  Forwards forwards;
  StepScale scale;
  StepStats stats;
  NonfiniteSearch search;
  Gradients gradients;
};

}  // namespace zt
