// Operators as Lua functions.
#pragma once

#include <lua.hpp>

#include "ops/given.h"
#include "ops/signature.h"

namespace zt::lua {

// Pushes the function or method of an operator.
void push_operator(lua_State* L, const Operator& op, CallStyle style);

// Pushes the operator of that name, or returns false.
bool push_operator(lua_State* L, const std::string& name, CallStyle style);

}  // namespace zt::lua
