// Rehearses the first micro-batches only, where the others are like them. Pure.
#pragma once

#include <vector>

#include "plan/rehearsal/rehearsal.h"

namespace zt {

// Returns whether all micro-batches have the same shapes.
bool are_alike(const std::vector<Batch>& micro_batches);
// Returns whether the first micro-batches have actions of all kinds that the others have, and are not all.
bool stands_for_all(const RankProgram& program);
// Returns the program with the actions of the first micro-batches only.
RankProgram first_micro_batches(const RankProgram& program);
// Returns the rehearsal of `program` from that of `part`, its first micro-batches. Each action holds as many bytes more or less
// than the action before as its counterpart does.
Rehearsal extended(const RankProgram& program, const RankProgram& part, const Rehearsal& of_part);

}  // namespace zt
