// Random schedules, correct and broken ones, as pure functions of a seed.
#pragma once

#include <cstdint>

#include "schedule/schedule.h"

namespace zt::test {

// Returns a random order of all tasks that keeps their dependencies and the order of each stage's sums, of which each rank has
// its part. 2 to 4 ranks, 2 to 8 stages on any ranks, 1 to 6 micro-batches, with whole and split backwards.
pipe::PipelineSchedule random_schedule(uint32_t seed);
// Returns the same with a few random edits: steps moved, swapped, repeated, removed or changed.
pipe::PipelineSchedule broken_schedule(uint32_t seed);

}  // namespace zt::test
