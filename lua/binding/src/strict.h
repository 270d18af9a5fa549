// Strict globals: a misspelt name is an error where it is read.
#pragma once

#include <lua.hpp>

namespace zt::lua {

// Reading an undefined global is an error with the nearest name. New globals may be assigned at the top level of a file only;
// rawset(_G, name, value) and rawget(_G, name) go around both rules. Libraries in the folders that package.path names at the
// time of this call, the system's, are exempt: many of them probe for globals.
void install_strict_globals(lua_State* L);

}  // namespace zt::lua
