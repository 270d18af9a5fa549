// all_reduce in shared memory. Each rank reduces its segment of all ranks' inputs and writes the result into every rank's output.
#pragma once

#include "core/operation.h"
#include "shm/team.h"
#include "shm/windows.h"

namespace zt::comm {

// Call these after team.enter(), for an operation on one pair of tensors. Inline: the inputs lie in the notices, and every rank
// reduces all of them. Direct: all ranks' tensors lie in windows. Staged: any memory.
void all_reduce_inline(const Team& team, const Operation& operation);
void all_reduce_direct(Team& team, const Windows& windows, const Operation& operation);
void all_reduce_staged(Team& team, const Operation& operation);

}  // namespace zt::comm
