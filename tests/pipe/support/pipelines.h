// Trains the small GPT of numerics/support/training.h through a pipeline.
#pragma once

#include <memory>
#include <string>

#include "numerics/support/training.h"
#include "schedule/schedule.h"
#include "zt/base/value.h"

namespace zt::test {

// The GPT has five positions: embedding, three blocks, and the head, which may be tied to the embedding.
struct Pipeline {
  int ranks = 2;
  std::string name = "one_f_one_b";                                  // of a schedule
  std::shared_ptr<const pipe::PipelineSchedule> schedule = nullptr;  // instead
  Value partition = "uniform";
};

// Returns the configuration with `pipeline`. `whole.ranks` are the data-parallel ranks.
Config through(const Pipeline& pipeline, Config whole);

// Returns the outcome without a pipeline.
const Outcome& whole_run(Config whole);

// Fails the test unless the runs with and without the pipeline have the same bits. Runs without are remembered: the stage of ZeRO
// and recompute do not change their bits, as other tests show, so they are run at stage 0 without recompute.
void expect_exact(const Pipeline& pipeline, const Config& whole);

}  // namespace zt::test
