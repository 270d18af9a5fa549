// Checks a trainer's options, and what all of its ranks must have alike.
#pragma once

#include "zt/comm/alike.h"
#include "zt/train/trainer.h"

namespace zt {

// Throws Misuse if the options do not fit the program, or one another.
void check_options(const Program& program, const TrainerOptions& options);

// Returns what all ranks of a trainer must have alike besides their programs: the seed, layers with their options, loss terms,
// shapes of parameters, statistics, the optimizer, the schedule and the trainer's own options.
Facts facts_of(const Program& program, const TrainerOptions& options);
// Returns one fact per parameter about the initial values of the whole tensor: a hash of up to 1,024 of its elements, in blocks
// that are spread evenly, and the first element.
Facts initial_facts_of(const Program& program);

// Throws Misuse, with the name of the call, if the plan has no optimizer.
void require_optimizer(const Plan& plan, const char* call);

// Throws Misuse, with the name of the call, if layers compute without their adapters now.
void require_adapters(const StepState& state, const char* call);

// Returns the parts that only a trainer with buffers has. Throws Misuse for those of a dry trainer, which are null.
TrainerRuns& unless_dry(TrainerRuns* running);

}  // namespace zt
