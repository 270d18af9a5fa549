// Batches from Lua: tables of tensors, or lists of such tables.
#pragma once

#include <string>

#include "zt/execute/step_batch.h"
#include "zt/lua/state.h"

namespace zt::lua {

// Throw Misuse for another value; `what` begins the message: "argument 1".
Batch to_batch(const Value& value, const std::string& what);
StepBatch to_step_batch(const Value& value, const std::string& what);

// The same for an argument of a method.
Batch check_batch(lua_State* L, int index);
StepBatch check_step_batch(lua_State* L, int index);

}  // namespace zt::lua
