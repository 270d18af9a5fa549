// The handler of NORM, which sums losses, statistics and the gradient norm over all ranks and tells them of a failure.
#pragma once

#include <memory>
#include <optional>

#include "execute/compute.h"
#include "zt/execute/executor.h"

namespace zt {

// The step's normalisation. COUNT sets it, STEP divides by it. Backwards start with a constant power of two near 1 / (tokens of a
// micro-batch), so that gradients keep their magnitude. STEP divides by the rest in one fp32 multiplication.
struct Normalisation {
  bool is_by_hand = false;                // Trainer::forward sets the seeds; COUNT does not run
  double loss_divisor = 1;                // by hand: divisor of the sum of the micro-batches' mean losses
  std::optional<int> seed_exponent = {};  // k: seeds are 2^-k; fixed at the first training step
};

std::shared_ptr<ActionHandler> norm_handler(std::shared_ptr<ComputeState> compute, std::shared_ptr<Normalisation> normalisation);

}  // namespace zt
