// Typed userdata: an Object of the SDK in Lua's hands. Each Tag has one metatable a state.
#pragma once

#include <lua.hpp>

#include "zt/base/object.h"

namespace zt::lua {

// The tag of the typed userdata at `index`; nullptr for anything else.
const Tag* object_tag(lua_State* L, int index);

}  // namespace zt::lua
