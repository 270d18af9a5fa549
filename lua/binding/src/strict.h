// Strict globals: reading a misspelt global is an error.
#pragma once

#include <lua.hpp>

namespace zt::lua {

// Makes reading an undefined global an error that suggests the nearest name. New globals may be assigned at the top level of a
// file only. rawset(_G, name, value) and rawget(_G, name) avoid both rules. System libraries (files in the folders that
// package.path names at the time of this call) are exempt: many of them probe for globals.
void install_strict_globals(lua_State* L);

}  // namespace zt::lua
