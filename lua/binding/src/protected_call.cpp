#include "protected_call.h"

#include "arguments.h"
#include "zt/error.h"

namespace zt::lua {

namespace {

// The message handler: runs where the error was raised, before the stack is unwound. Leaves the value as it is.
int note_traceback(lua_State* L) {
  luaL_traceback(L, L, nullptr, 1);
  context(L).last_traceback = lua_tostring(L, -1);
  lua_pop(L, 1);
  return 1;
}

}  // namespace

void Failure::raise() const {
  const std::string text = traceback.empty() ? message : message + "\n" + traceback;
  switch (family) {
    case Family::aborted:
      throw Aborted(text);
    case Family::fault:
      throw Fault(text);
    case Family::misuse:
      throw Misuse(text);
    case Family::error:
      break;
  }
  throw Error(text);
}

std::optional<Failure> protected_call(lua_State* L, int arguments, int results) {
  Context& state = context(L);
  const int handler = lua_gettop(L) - arguments;
  lua_pushcfunction(L, note_traceback);
  lua_insert(L, handler);
  state.last_traceback.clear();
  const int status = lua_pcall(L, arguments, results, handler);
  lua_remove(L, handler);
  if (status == 0) return std::nullopt;
  Failure failure{text_of(L, -1), std::move(state.last_traceback), Family::error};
  if (!lua_isstring(L, -1) && !lua_isuserdata(L, -1)) failure.message = "the error value " + failure.message + " (no string)";
  if (failure.message == state.last_message) failure.family = state.last_family;
  if (failure.message.find("\nstack traceback:") != std::string::npos) failure.traceback.clear();
  lua_pop(L, 1);
  return failure;
}

}  // namespace zt::lua
