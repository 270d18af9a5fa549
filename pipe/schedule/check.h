// Finds the mistakes of a schedule before anything is built from it.
#pragma once

#include <string>
#include <vector>

#include "schedule.h"

namespace zt::pipe {

struct Mistake {
  int rank = -1;  // -1: the schedule as a whole
  int step = -1;  // 0-based place in the rank's list; -1: the rank as a whole
  std::string reason;
  std::string text() const;  // "rank 1, step 4 (1F4) ...": like the lists of scripts, it counts steps from 1
};

// Returns all mistakes, sorted by rank and step: numbers out of range, a stage on two ranks or on none, tasks that are missing,
// double or in the wrong order, W's (or B's) of a stage that do not come in the order of micro-batches, and ranks that would wait
// for ever. `most_held` bounds the activations of a rank (pairs of stage and micro-batch); 0: no bound.
std::vector<Mistake> check(const PipelineSchedule& schedule, int most_held = 0);

// Throws Misuse with all mistakes, unless there are none. `name` says where the schedule is from.
void require_correct(const PipelineSchedule& schedule, const std::string& name);

}  // namespace zt::pipe
