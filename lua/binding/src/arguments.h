// What the argument checks share.
#pragma once

#include <lua.hpp>
#include <string>

namespace zt::lua {

// "nil", "a string", "a tensor float32[2, 3] on cpu", "a Layer": for messages.
std::string type_text(lua_State* L, int index);

// "argument 2", or "self" in a method call.
std::string argument_name(lua_State* L, int index);

// "argument 2: a tensor expected, got a string".
[[noreturn]] void wrong_argument(lua_State* L, int index, const std::string& expected);

// Any value as text: strings and numbers as they are, what has __tostring by it, tables by their contents (one level).
std::string text_of(lua_State* L, int index);

// The index counted from the bottom of the stack, which pushing does not move.
inline int absolute(lua_State* L, int index) {
  return index > 0 || index <= LUA_REGISTRYINDEX ? index : lua_gettop(L) + index + 1;
}

}  // namespace zt::lua
