// How ranks that meet in a team get at each other's memory.
#pragma once

#include <vector>

#include "shm/team.h"

namespace zt::comm {

// Each rank makes `bytes` of shared memory; returns all ranks' pieces, in rank order, mapped here. bytes 0: a rank makes none.
// Collective. Declined on all ranks alike if one cannot make or open a piece.
std::vector<SharedMemory> share(Team& team, size_t bytes, Pages pages);

}  // namespace zt::comm
