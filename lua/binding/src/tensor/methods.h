// Methods of tensors that are bound by hand. All other methods are ATen operators.
#pragma once

#include <lua.hpp>
#include <string>
#include <vector>

namespace zt::lua {

// Pushes the table of methods. An operator is added to the table at its first use.
void push_methods(lua_State* L);

// Returns the names of all methods and operators, for messages.
const std::vector<std::string>& method_names();

}  // namespace zt::lua
