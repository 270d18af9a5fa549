// What zt.ckpt gives to Lua, in parts.
#pragma once

#include "together.h"
#include "zt/lua/state.h"

namespace zt::ckpt {

// The ranks of the mesh that is argument `index`; without one this rank alone.
Ranks ranks_of(lua_State* L, int index);

void open_tools(lua::Module& module);

}  // namespace zt::ckpt
