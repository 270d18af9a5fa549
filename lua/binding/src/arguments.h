// Helpers of the argument checks.
#pragma once

#include <lua.hpp>
#include <string>

namespace zt::lua {

// Returns "nil", "a string", "a tensor float32[2, 3] on cpu", "a Layer" and the like, for messages.
std::string type_text(lua_State* L, int index);

// Returns "argument 2", or "self" in a method call. A method call counts arguments without self.
std::string argument_name(lua_State* L, int index);

// Throws Misuse: "argument 2: a tensor expected, got a string".
[[noreturn]] void wrong_argument(lua_State* L, int index, const std::string& expected);

// Returns any value as text: strings and numbers as they are, values with __tostring by calling it, tables by their contents
// (one level deep).
std::string text_of(lua_State* L, int index);

// Returns the index counted from the bottom of the stack. Unlike a negative index, it stays valid when values are pushed.
inline int absolute(lua_State* L, int index) {
  return index > 0 || index <= LUA_REGISTRYINDEX ? index : lua_gettop(L) + index + 1;
}

}  // namespace zt::lua
