// Methods of tensors for which ATen registers no schema.
#pragma once

#include <lua.hpp>
#include <string>
#include <vector>

namespace zt::lua {

// Pushes the table of methods; operators are added to it when they are first used.
void push_methods(lua_State* L);

// Names of all methods, operators included: for messages.
const std::vector<std::string>& method_names();

}  // namespace zt::lua
