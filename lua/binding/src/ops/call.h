// ATen operators as Lua functions.
#pragma once

#include <lua.hpp>

#include "ops/given.h"
#include "ops/signature.h"

namespace zt::lua {

// Pushes the operator as a function or a method.
void push_operator(lua_State* L, const Operator& op, CallStyle style);

// Pushes the operator `name` and returns true. Returns false, without pushing, if there is none.
bool push_operator(lua_State* L, const std::string& name, CallStyle style);

}  // namespace zt::lua
