// Checks a trainer's options.
#pragma once

#include "zt/train/trainer.h"

namespace zt {

// Throws Misuse if the options do not fit the program, or one another.
void check_options(const ProgramSpec& spec, const TrainerOptions& options);

}  // namespace zt
