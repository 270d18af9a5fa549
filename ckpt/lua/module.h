// What zt.ckpt gives to Lua, in parts.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "folder/together.h"
#include "zt/lua/state.h"

namespace zt::ckpt {

// The ranks of the mesh that is argument `index`; without one this rank alone.
Ranks ranks_of(lua_State* L, int index);

// Argument `index`, a path. Throws: Misuse for one with a NUL character, which the system would cut there.
std::string check_path(lua_State* L, int index);

// {regular expression = replacement} as MatchOptions::map. Misuse that names `what`.
std::vector<std::pair<std::string, std::string>> map_of(const Value& value, const char* what);

// {name, dtype, shape}
Value::Table description(const std::string& name, at::ScalarType dtype, const std::vector<int64_t>& shape);

void open_tools(lua::Module& module);
void open_formats(lua::Module& module);

}  // namespace zt::ckpt
