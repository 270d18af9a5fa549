// The counts of the global batch, summed over ranks, and failures that all ranks learn of.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "zt/comm/comm.h"
#include "zt/execute/executor.h"
#include "zt/execute/step_batch.h"
#include "zt/model/layer.h"

namespace zt {

class MicroBatches;

// Hashes of a rank's micro-batches.
struct SamplesHash {
  uint64_t names = 0;   // of the names of the fields
  uint64_t values = 0;  // of the names and the elements
};
// Reads all elements; those of other devices than the CPU are copied first.
SamplesHash hash_of(const std::vector<Batch>& micro_batches);
// Hashes the fields' names and shapes.
uint64_t hash_of_shapes(const std::vector<Batch>& micro_batches);

// How a rank's counts enter a sum over ranks.
struct Contribution {
  bool is_counted = true;    // false: another rank with the same samples and positions counts them
  int64_t group = -1;        // number of the ranks that have the same samples; -1: of this rank alone
  int64_t place = -1;        // number of the ranks that share the work on them in the same layers; -1: of this alone
  SamplesHash samples = {};  // of the group's samples; the default where they are not compared
  int64_t rows = -1;         // of the micro-batches; -1: as many as samples
  uint64_t shapes = 0;       // of the micro-batches, where all ranks must give the same
  int trainer = 0;           // Links::trainer
  double lr = 0;             // the base learning rate of this step
  double divisor = 0;        // of the gradients' sums; 0 where the counts define it
  std::optional<StepFailure> failure = {};  // of this rank: it only takes part, and has no counts
};

// Returns whether ranks along `axes` have the same samples.
bool share_samples(const RankPlace& place, const std::vector<std::string>& axes);

// Returns how this rank's counts enter the sums over `axes`. The samples are hashed where several ranks must have the same, and
// at the first step.
Contribution contribution_of(const StepState& state, const std::vector<std::string>& axes, const MicroBatches& batches,
                             Mode mode);

// Returns the first failure of a rank of `control` that is not due to another rank's, in words with the rank: "rank 1 of 'dp'
// failed: ...". Collective over `control`; one of the ranks has failed.
std::string share_failure(Communicator& control, const std::optional<StepFailure>& mine);

// As share_failure, but asks first whether any rank has failed. Empty if none has.
std::string find_failure(Communicator& control, const std::optional<StepFailure>& mine);

// Calls `body` on all ranks of `control`; null means this rank only. If it throws on one of them, all ranks throw: that rank its
// own error, the others a Misuse with its text. A Fault is thrown at once. `body` must not communicate. Collective.
void run_together(Communicator* control, const std::function<void()>& body);

// Returns the sum of the counts of all ranks of `comm`. Ranks of a group may have other samples than rows, which are then the
// group's: those that run no loss layer know rows only. It is the first collective of a program of any mode. Throws Misuse on all
// ranks unless they run the same mode of one trainer at the same step, for example if one rank evaluates alone, or if ranks have
// other shapes, numbers of rows, learning rates or divisors, or if those of a group have different samples in the same fields,
// those of a place other fields, or if those of a group count different tokens or samples. Throws PeerFailed, with the failure,
// on all ranks if one of them has failed. Warns, once per process, if ranks of several groups have the same samples.
Counts sum_counts(Communicator& comm, Counts mine, Contribution adds, Mode mode, int64_t step);

}  // namespace zt
