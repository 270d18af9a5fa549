// Ranks as threads of the test's process.
#pragma once

#include <functional>

#include "zt/process/world.h"

namespace zt::test {

// Calls `body` once in each of `ranks` threads, with one ThreadGroup, and returns when all are done. A rank that throws aborts
// the group; the exception of the first rank that did not merely follow (zt::Aborted) is thrown here.
void spawn(int ranks, const std::function<void(const World&)>& body);

}  // namespace zt::test
