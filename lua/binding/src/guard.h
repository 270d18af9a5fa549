// Turns C++ exceptions into Lua errors. No other file does this.
#pragma once

#include <exception>
#include <lua.hpp>
#include <string>
#include <string_view>

#include "binding_state.h"

namespace zt::lua {

// Returns "file:line: " for the start of a message: of the innermost Lua frame outside of library files
// (BindingState::library_folders), or of the innermost Lua frame if all are in library files. Returns "" if there is no Lua
// frame, or if the main program is a library file, as for a subcommand: then there is no script to point to. The direct caller
// has no frame if it called the native function by a tail call (return f(x)) or by pcall.
std::string script_position(lua_State* L, const BindingState& state);

// Returns "stack traceback:\n\t..." of the frames in scripts. Frames in library files and the native functions that they call are
// left out, unless `text`, the error's, begins with a place in the innermost of them: then the library itself is wrong.
std::string traceback(lua_State* L, const BindingState& state, std::string_view text);

// Pushes the error's text after the script's file and line, and stores its family in `state`.
void push_error(lua_State* L, BindingState& state, const std::exception& error);

// Runs `body(L)`, which returns its number of results, and raises its exceptions as Lua errors. LuaJIT's own errors pass through:
// they are not std::exceptions, and `catch (...)` would stop them. lua_error is called after the catch block, so that the
// exception has been destroyed.
template <class Body>
int guard(lua_State* L, Body&& body) {
  BindingState& state = binding_state(L);
  struct Entered {
    BindingState& state;
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
