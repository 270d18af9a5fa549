// Runs ranks as threads of the test's process.
#pragma once

#include <functional>

#include "zt/process/world.h"

namespace zt::test {

// Calls `body` in `ranks` threads, which share one ThreadGroup, and returns when all are done. A rank that throws aborts the
// group. Then rethrows the first exception that is not zt::Aborted: Aborted is only a consequence of another rank's failure.
void spawn(int ranks, const std::function<void(const World&)>& body);

}  // namespace zt::test
