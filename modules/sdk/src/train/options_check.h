// Checks a trainer's options.
#pragma once

#include "zt/train/trainer.h"

namespace zt {

// Throws Misuse if the options do not fit the program, or one another.
void check_options(const Program& program, const TrainerOptions& options);

// Throws Misuse, with the name of the call, if the plan has no optimizer.
void require_optimizer(const Plan& plan, const char* call);

// Returns the parts that only a trainer with buffers has. Throws Misuse for those of a dry trainer, which are null.
TrainerRuns& unless_dry(TrainerRuns* running);

}  // namespace zt
