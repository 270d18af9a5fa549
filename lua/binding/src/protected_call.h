// Turns Lua errors into C++ values: the counterpart of guard.h.
#pragma once

#include <lua.hpp>
#include <optional>
#include <string>

#include "binding_state.h"

namespace zt::lua {

struct Failure {
  std::string message;    // the error value as text
  std::string traceback;  // "stack traceback:\n...", where the first of the calls in each other failed
  Family family;          // the family of the native exception that was raised; Family::error for Lua's own errors

  // Throws Error, Misuse, Fault or Aborted with the message.
  [[noreturn]] void raise() const;
};

// Calls lua_pcall with the function and its `arguments` values on top of the stack. Returns nullopt on success; `results` values
// are then on the stack. After a failure the stack is as before the function was pushed. Coroutines cannot yield across it.
std::optional<Failure> protected_call(lua_State* L, int arguments, int results);

}  // namespace zt::lua
