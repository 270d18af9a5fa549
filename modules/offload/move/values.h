// When the data of a step, values and graphs, leave the memory between a forward and its backward. Pure.
#pragma once

#include "zt/model/model.h"
#include "zt/program/rank_program.h"

namespace zt::offload {

// Places in memory, two of each kind of data: while one is written to or read from, the other is filled or used.
inline constexpr int kValueSlots = 2 * static_cast<int>(words_of(StepData{}).size());

struct ValueMoves {
  Tier tier = Tier::file;
  int stay = 1;       // the last positions whose data stay in memory
  int64_t least = 0;  // bytes of the smallest tensor that leaves
  int first_slot = 0;
};

// Inserts EVICT_VALUE and FETCH_VALUE into a training program. Data leave after their last use in the forwards, and come back
// while the backward before the one that needs them runs.
void insert_value_moves(RankProgram& program, const ModelInfo& model, const ValueMoves& moves);

}  // namespace zt::offload
