// Checks of the promised numerics for one configuration.
#pragma once

#include <vector>

#include "numerics/support/training.h"

namespace zt::test {

// How a global batch is split.
struct Split {
  int ranks = 1, micro_batches = 1;
};
// Splits of kSamples, one per number of ranks.
inline const std::vector<Split> kOneToFourRanks{{1, 2}, {2, 2}, {3, 2}, {4, 3}};
inline const std::vector<Split> kTwoAndFourRanks{{2, 3}, {4, 3}};

// Trains `config` on one rank in fp64 without a zero pass, with the batch as one micro-batch. By hand the objective is the mean
// over micro-batches: then it takes as many micro-batches as all ranks of `config` have together.
Outcome exact_run(Config config);

// Expects that losses, norms and the first gradient of a run in fp64 are within 1e-12 of those of the exact run.
void expect_near(const Outcome& run, const Outcome& exact);

// Checks the exact run itself: on one rank in fp64 the first gradient along one direction must be the slope of the loss, found by
// two evaluations.
void expect_slope_of_loss(Config config);

// Runs each split with each value of reduce_every in fp64, and with "step" in bf16 (with master parameters). Expects that all
// stages, with node_shared = false and with its default, have the bits of stage 0. In fp64 they must also be near the run on one
// rank.
void expect_promises(Config config, const std::vector<Split>& splits);

}  // namespace zt::test
