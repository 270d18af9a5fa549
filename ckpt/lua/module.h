// The binding of zt.ckpt: helpers of its three files.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "folder/together.h"
#include "zt/lua/state.h"

namespace zt::ckpt {

// Returns the ranks of the mesh in argument `index`; this rank alone if the argument is absent.
Ranks ranks_of(lua_State* L, int index);

// Returns argument `index`, a path. Throws Misuse if it has a NUL character, where the system would end it.
std::string check_path(lua_State* L, int index);

// Returns {regular expression = replacement} as MatchOptions::map. Throws Misuse that names `what` for another value.
std::vector<std::pair<std::string, std::string>> map_of(const Value& value, const char* what);

// Returns {name, dtype, shape}.
Value::Table description(const std::string& name, at::ScalarType dtype, const std::vector<int64_t>& shape);

// Add the functions of module_tools.cpp and module_formats.cpp to the module.
void open_tools(lua::Module& module);
void open_formats(lua::Module& module);

}  // namespace zt::ckpt
