// Helpers of the argument checks.
#pragma once

#include <lua.hpp>
#include <string>

namespace zt::lua {

// Returns "nil", "a string", "a tensor float32[2, 3] on cpu", "a Layer" and the like, for messages.
std::string type_text(lua_State* L, int index);

// Returns "argument 2", or "self" in a method call. A method call counts arguments without self.
std::string argument_name(lua_State* L, int index);

// Records that the function on top of the stack is the method `name`. Leaves the stack as it is.
void note_method(lua_State* L, const char* name);
// Throws Misuse: the method `name` was called without its object, as by x.name() instead of x:name().
[[noreturn]] void refuse_self(lua_State* L, const std::string& name, const std::string& expected);

// Throws Misuse: "argument 2: a tensor expected, got a string". If it is the object of a method, says to call it with ":".
[[noreturn]] void wrong_argument(lua_State* L, int index, const std::string& expected);

// Returns any value as text: strings and numbers as they are, values with __tostring by calling it, tables by their contents
// (one level deep).
std::string text_of(lua_State* L, int index);

// Pushes the table of the registry with the address `key`. Returns whether this call has made it.
bool push_registry_table(lua_State* L, const void* key);

// Returns the index counted from the bottom of the stack. Unlike a negative index, it stays valid when values are pushed.
inline int absolute(lua_State* L, int index) {
  return index > 0 || index <= LUA_REGISTRYINDEX ? index : lua_gettop(L) + index + 1;
}

}  // namespace zt::lua
