// When data that lie elsewhere are in memory, and in which places. Pure.
#pragma once

#include "zt/model/model.h"
#include "zt/program/rank_program.h"

namespace zt::offload {

// How many places in memory there are for slices of optimizer state, for slices of parameters, and for all parameters of a unit.
struct PoolSizes {
  int state = 0, params = 0, units = 0;
};

// Inserts FETCH and EVICT into a program whose units say where their data lie, and whose STEPs are in slices. Fetches stand as
// early as the places allow. What updates need is not fetched before the last forward: there is time enough during the backwards.
void insert_moves(RankProgram& program, const ModelInfo& model, const PoolSizes& places);

}  // namespace zt::offload
