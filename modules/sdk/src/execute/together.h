// Calls that fail on all ranks if they fail on one.
#pragma once

#include <functional>

#include "zt/comm/comm.h"

namespace zt {

// Calls `body` on all ranks of `control`; null means this rank only. If it throws on one of them, all ranks throw: that rank its
// own error, the others a Misuse with its text. A Fault is thrown at once. `body` must not communicate. Collective.
void run_together(Communicator* control, const std::function<void()>& body);

}  // namespace zt
