// From Lua back to C++: the counterpart of the guard.
#pragma once

#include <lua.hpp>
#include <optional>
#include <string>

#include "context.h"

namespace zt::lua {

struct Failure {
  std::string message;    // the error value as text
  std::string traceback;  // "stack traceback:\n..."; empty when `message` brings one from an inner call
  Family family;          // of the native exception that this error is; Family::error for Lua's own

  // Throws Error, Misuse, Fault or Aborted with the message and the traceback.
  [[noreturn]] void raise() const;
};

// lua_pcall of the function and its `arguments` on top of the stack. nullopt: `results` values are on the stack. Otherwise
// the stack is as before the function was pushed. Coroutines cannot yield across it.
std::optional<Failure> protected_call(lua_State* L, int arguments, int results);

}  // namespace zt::lua
