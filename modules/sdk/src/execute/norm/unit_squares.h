// The squares of a unit's gradient that this rank adds to the norm.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "zt/execute/executor.h"

namespace zt {

// The ranks of `axes`, those of NORM, that hold the same elements of the unit's gradient each count one of several pieces of
// them, so that each element counts once. Returns this rank's elements of its owned part.
Slice counted_piece(const Unit& unit, const std::vector<std::string>& axes, const StepState& state);

// Adds the squares of these elements of the owned part of a gradient.
void add_piece(const at::Tensor& grad_shard, const Slice& piece, ExactSum& sum);

}  // namespace zt
