// A step whose caller decides, once its norm is known, whether it updates.
#pragma once

#include "program_runs.h"
#include "zt/train/trainer.h"

namespace zt {

// Runs the training program of `running` up to its norm, calls `update_if`, and runs the rest, which updates nothing unless the
// call returns true on all ranks. Returns whether a step with finite numbers was declined. If the call throws on a rank, no rank
// updates, and all throw when the step ends (ProgramRuns::attempt). Collective.
bool run_asking(Executor& running, ProgramRuns& runs, const Plan& plan, const UpdateIf& update_if);

}  // namespace zt
