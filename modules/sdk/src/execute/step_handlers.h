// Handlers of the kinds that every program has: COUNT, F, R, B, NORM, STEP.
#pragma once

#include <memory>

#include "compute.h"
#include "counts.h"
#include "zt/execute/executor.h"
#include "zt/model/optimizer.h"

namespace zt {

// The step's normalisation. COUNT sets it, STEP divides by it. Backwards start with a constant power of two near 1 / (tokens of a
// micro-batch), so that gradients keep their magnitude. STEP divides by the rest in one fp32 multiplication.
struct Normalisation {
  bool is_by_hand = false;                // Trainer::forward sets the seeds; COUNT does not run
  double loss_divisor = 1;                // by hand: divisor of the sum of the micro-batches' mean losses
  std::optional<int> seed_exponent = {};  // k: seeds are 2^-k; fixed at the first training step
};

// Returns the handlers. `updates`: by unit, the segments of this rank's shard.
Executor::Handlers step_handlers(std::shared_ptr<ComputeState> compute, std::shared_ptr<Normalisation> normalisation,
                                 std::shared_ptr<const Optimizer> optimizer, std::vector<std::vector<Segment>> updates);

}  // namespace zt
