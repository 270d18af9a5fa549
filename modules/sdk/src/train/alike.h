// Facts for check_alike: the options and initial values that all ranks of a trainer must have alike.
#pragma once

#include "zt/comm/alike.h"
#include "zt/program/program.h"

namespace zt {

struct TrainerOptions;

// Returns what all ranks of a trainer must have alike besides their programs: the seed, layers with their options, loss terms,
// shapes of parameters, statistics, the optimizer, the schedule and the trainer's own options.
Facts facts_of(const Program& program, const TrainerOptions& options);
// Returns one fact per parameter about the initial values of the logical tensor: a hash of up to 1,024 of its elements, in blocks
// that are spread evenly, and the first element.
Facts initial_facts_of(const Program& program);

}  // namespace zt
