// all_reduce in shared memory: each rank adds up its segment of all ranks' inputs and puts the result into everybody's output.
#pragma once

#include "core/operation.h"
#include "shm/team.h"
#include "shm/windows.h"

namespace zt::comm {

// After team.enter(), with the operation's one pair of tensors.
void all_reduce_inline(const Team& team, const Operation& operation);
// All ranks' tensors lie in windows.
void all_reduce_direct(Team& team, const Windows& windows, const Operation& operation);
void all_reduce_staged(Team& team, const Operation& operation);

}  // namespace zt::comm
