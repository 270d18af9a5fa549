// Comparison of programs.
#pragma once

#include "zt/program/rank_program.h"

namespace zt {

// Return whether all fields are equal. Attributes that hold tensors or objects are equal if they hold the same tensor or object.
bool is_equal(const Action& a, const Action& b);
bool is_equal(const RankProgram& a, const RankProgram& b);

}  // namespace zt
