// The one place where exceptions become Lua errors.
#pragma once

#include <exception>
#include <lua.hpp>
#include <string>

#include "context.h"

namespace zt::lua {

// Returns "file:line: " of the innermost Lua frame outside of the libraries (Context::library_folders), for the start of a
// message. Without such a frame: of the innermost Lua frame. Returns "" without any Lua frame, and where a library file is what
// runs, as for a subcommand: there is no script to point to. The direct caller has no frame when it called the native function
// last (return f(x) is a tail call) or by pcall.
std::string script_position(lua_State* L, const Context& context);

// Pushes the error's text with the script's file and line in front, and remembers its family.
void push_error(lua_State* L, Context& context, const std::exception& error);

// Runs `body(L)`, which returns its number of results. LuaJIT's own errors pass through: they are no std::exception, and
// `catch (...)` would hold them up. The error is raised outside of the catch block, when the exception is destroyed.
template <class Body>
int guard(lua_State* L, Body&& body) {
  Context& state = context(L);
  struct Entered {
    Context& state;
    lua_State* before;
    ~Entered() { state.current = before; }
  };
  {
    const Entered entered{state, std::exchange(state.current, L)};
    try {
      return body(L);
    } catch (const std::exception& error) {
      push_error(L, state, error);
    }
  }
  return lua_error(L);
}

}  // namespace zt::lua
