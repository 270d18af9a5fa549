// The batch of a step.
#pragma once

#include <vector>

#include "engine/draw.h"
#include "engine/engine_options.h"
#include "zt/execute/step_batch.h"
#include "zt/model/kv_cache.h"

namespace zt::infer {

// The work of a replica in one step. Each micro-batch is one sample: it holds the rows of some parts, one after the other.
struct PlannedStep {
  std::vector<AnswerPart> parts = {};  // in the order of their rows in all micro-batches
  std::vector<Batch> micro_batches = {};
  std::vector<std::vector<KvSequence>> sequences = {};  // by micro-batch
};

// Cuts the parts into so many micro-batches with about as many rows each. Some of them may be empty.
PlannedStep plan_step(std::vector<AnswerPart> parts, int micro_batches);

// Returns the batch of a step with as many tokens as the options allow, all of them 0, and as many sequences, for plans.
std::vector<Batch> widest_step(const EngineOptions& options, int micro_batches);

}  // namespace zt::infer
