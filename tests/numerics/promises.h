// What NUMERICS promises of one configuration, in calls.
#pragma once

#include <vector>

#include "training.h"

namespace zt::test {

struct Cut {
  int ranks = 1, micro_batches = 1;
};
// A cut of kSamples for each number of ranks.
inline const std::vector<Cut> kOneToFourRanks{{1, 2}, {2, 2}, {3, 2}, {4, 3}};
inline const std::vector<Cut> kTwoAndFourRanks{{2, 3}, {4, 3}};

// One rank in fp64 and no zero pass, the batch in one piece; by hand, where the objective is a mean over pieces, in as many as
// the ranks of `config` have together.
Outcome exact_run(Config config);

// Losses, norms and the first gradient of a run in fp64 are within 1e-12 of the exact run's.
void expect_near(const Outcome& run, const Outcome& exact);

// What all runs are compared with is right: on one rank in fp64 the first gradient, along one direction, is the slope of the
// loss that evaluations give to both sides.
void expect_slope_of_loss(Config config);

// On each cut, with each way to reduce: every stage, its parameters held once a rank and as zero.shard has it by itself, has the
// bits of stage 0, in bf16 (with masters) and fp64; in fp64 it is near one rank's run too.
void expect_promises(Config config, const std::vector<Cut>& cuts);

}  // namespace zt::test
