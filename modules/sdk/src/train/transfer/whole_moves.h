// Moves tensors that each rank needs whole, one at a time.
#pragma once

#include "transfer_lanes.h"
#include "transfer_rounds.h"

namespace zt {

// Returns the bytes that this rank has sent and kept. Collective over the mesh of `from`. What fails on this rank only is noted
// in `failure`.
MovedBytes move_whole(const std::vector<WholeMove>& moves, const Store& from, Store& to, FirstFailure& failure);

}  // namespace zt
