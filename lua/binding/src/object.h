// Typed userdata: a userdata that holds an Object of the SDK. Each Tag has one metatable per state.
#pragma once

#include <lua.hpp>

#include "zt/base/object.h"

namespace zt::lua {

// Returns the tag of the typed userdata at `index`; null for any other value.
const Tag* object_tag(lua_State* L, int index);

}  // namespace zt::lua
