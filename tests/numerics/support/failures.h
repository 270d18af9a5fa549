// Steps in which an action fails once.
#pragma once

#include "numerics/support/training.h"

namespace zt::test {

// Which ranks fail.
enum class Failing : uint8_t { all, last };

// Trains `config` for two steps after a checkpoint, once without a failure and then for every `stride`-th place in the training
// program: there an action fails once on these ranks, the script catches the error, and goes on as it says. Expects that
// - a step that fails on one rank fails on all ranks, with that rank's message, unless it had begun to change parameters,
// - after a failure before that, the same step again and the next one have the losses of the run without a failure,
// - after a later one, every rank refuses the next step and asks for a checkpoint, and after a load the losses are the same.
void expect_failures_leave_no_trace(Config config, Failing failing, int stride = 1);

}  // namespace zt::test
