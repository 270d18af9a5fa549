// Gives the ranks of a team access to each other's memory.
#pragma once

#include <functional>
#include <vector>

#include "shm/team.h"

namespace zt::comm {

// Creates `bytes` of shared memory on this rank (0: none). Returns the memories of all ranks, in rank order, mapped into this
// process. Collective. Throws Declined on all ranks if one of them cannot create or open a memory.
std::vector<SharedMemory> share(Team& team, size_t bytes, Pages pages);

// Calls `offer`, which returns the address of a memory of this rank (0 bytes: none). Returns the memories of the other ranks, in
// rank order, mapped into this process; this rank's place is empty. Then all ranks have opened this rank's memory. Collective.
// Throws Declined on all ranks if one of them throws Fault in `offer` or cannot open a memory.
std::vector<SharedMemory> open_others(Team& team, const std::function<MemoryAddress()>& offer);

}  // namespace zt::comm
