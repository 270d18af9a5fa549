// When data that lie elsewhere are in memory, and in which places. Pure.
#pragma once

#include <array>
#include <vector>

#include "move/uses.h"
#include "move/values.h"
#include "zt/model/model.h"
#include "zt/program/rank_program.h"

namespace zt::offload {

// How many places in memory there are, by Pool.
using PoolSizes = std::array<int, kAllPools.size()>;
inline constexpr int kMostPlaces = (kMostSlots - kValueSlots) / static_cast<int>(kAllPools.size());  // of a pool

// By Pool. The STEPs of the program must be in slices.
std::vector<PoolUses> all_uses(const RankProgram& program, const ModelInfo& model);

// Inserts FETCH and EVICT into a program whose units say where their data lie. Fetches stand as early as the places allow, which
// must be enough for each action. What updates need is not fetched before the last forward: there is time enough during the
// backwards.
void insert_moves(RankProgram& program, const std::vector<PoolUses>& uses, const PoolSizes& places);

}  // namespace zt::offload
