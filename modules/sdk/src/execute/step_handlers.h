// Handlers of the kinds that every program has: COUNT, F, R, B, NORM, STEP.
#pragma once

#include <memory>

#include "compute.h"
#include "zt/execute/executor.h"
#include "zt/model/optimizer.h"

namespace zt {

// The step's normalisation, which COUNT finds and STEP undoes. Gradients are seeded with a constant power of two near
// 1 / (tokens of a micro-batch), so that they keep their magnitude; dividing by what is left is one fp32 product in STEP.
struct Normalisation {
  bool is_by_hand = false;                // the seeds are set by Trainer::forward; COUNT does not run
  double loss_divisor = 1;                // by hand: what the sum of the micro-batches' mean losses is divided by
  std::optional<int> seed_exponent = {};  // k: seeds are 2^-k; fixed at the first training step
};

// Adds the counts of all ranks of `comm`, which are at step `step` in the same mode: Misuse on all of them when they are not, as
// when one evaluates alone. The first operation of a program, whatever its mode.
Counts sum_counts(Communicator& comm, Counts mine, Mode mode, int64_t step);

// `updates`: by unit, the segments of this rank's shard.
Executor::Handlers step_handlers(std::shared_ptr<ComputeState> compute, std::shared_ptr<Normalisation> normalisation,
                                 std::shared_ptr<const Optimizer> optimizer, std::vector<std::vector<Segment>> updates);

}  // namespace zt
