// The work of an action of a program that was rehearsed.
#pragma once

#include "plan/rehearsal.h"
#include "zt/program/kind.h"

namespace zt {

// Returns the operations, bytes of memory and bytes sent of an action. A layer reads its parameters, and writes and reads once
// what it makes; a message has the bytes that were rehearsed; other actions have the cost of their kind.
Cost action_cost(const Action& action, const RehearsedAction& rehearsed, const CostBasis& basis);

}  // namespace zt
