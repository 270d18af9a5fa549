// List scheduling: builds a schedule from the times of its tasks, under a bound of memory.
#pragma once

#include <vector>

#include "schedule.h"
#include "timing.h"

namespace zt::pipe {

struct SearchOptions {
  StagePlacement placement = StagePlacement::v;
  int ranks = 1, chunks = 2, micro_batches = 1;
  Times times = {};
  // By rank: the most that its activations may take, in the unit of `activations`. Empty: no bound.
  std::vector<double> memory = {};
  // By stage: what a micro-batch holds between F and W. Empty: 1 each.
  std::vector<double> activations = {};
};

// Each rank that is free starts the I of the oldest micro-batch that is ready, else an F that the memory allows, else a W. A few
// rules for ties and for dividing the memory among a rank's stages are tried, and the schedule that ends first is returned, of
// equal ones that which holds least. Throws Misuse if a bound has no room for one micro-batch of each stage of its rank.
PipelineSchedule search(const SearchOptions& options);

// Returns the schedule with each B replaced by I and W, where W waits until its rank has nothing else to do, or would hold more
// than `most_held` of the rank. A rank whose forwards hold more even so, holds more.
PipelineSchedule split_backwards(const PipelineSchedule& schedule, const Times& times, std::vector<int> most_held);

}  // namespace zt::pipe
