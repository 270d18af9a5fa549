// Gives the ranks of a team access to each other's memory.
#pragma once

#include <vector>

#include "shm/team.h"

namespace zt::comm {

// Creates `bytes` of shared memory on this rank (0: none). Returns the memories of all ranks, in rank order, mapped into this
// process. Collective. Throws Declined on all ranks if one of them cannot create or open a memory.
std::vector<SharedMemory> share(Team& team, size_t bytes, Pages pages);

}  // namespace zt::comm
