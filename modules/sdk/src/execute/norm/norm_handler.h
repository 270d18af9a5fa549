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

// Returns the axes over which NORM adds losses and statistics, one after the other: those along which ranks run different
// positions, where each number comes from one rank, and then the others, in the order that the sum has without a pipeline.
// Neither list is empty.
std::vector<std::vector<std::string>> summed_in_turn(const std::vector<std::string>& axes,
                                                     const std::vector<std::string>& split_axes);

std::shared_ptr<ActionHandler> norm_handler(std::shared_ptr<ComputeState> compute, std::shared_ptr<Normalisation> normalisation);

}  // namespace zt
