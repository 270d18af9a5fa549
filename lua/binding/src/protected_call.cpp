#include "protected_call.h"

#include "arguments.h"
#include "guard.h"
#include "zt/base/error.h"
#include "zt/lua/state.h"

namespace zt::lua {

namespace {

constexpr const char* kNoMemory =
    "not enough memory: Lua's own objects (tables, strings, closures) need more than the process may take. "
    "Keep less in tables and more in tensors, or raise the limit (ulimit -v, the batch system's memory)";

// The message handler of lua_pcall: stores the traceback before the stack is unwound. Leaves the error value as it is. An error
// that passes through several calls keeps the traceback of the innermost one, which holds all frames.
int note_traceback(lua_State* L) {
  BindingState& state = binding_state(L);
  const std::string_view text = lua_type(L, 1) == LUA_TSTRING ? lua_tostring(L, 1) : "";
  const bool is_passed_on = !state.last_raised.empty() && text.find(state.last_raised) != std::string_view::npos;
  if (!is_passed_on) state.last_traceback = traceback(L, state, text);
  return 1;
}

// Argument 1: an error value. Pushes its text.
int text_of_error(lua_State* L) {
  std::string text = text_of(L, 1);
  if (!lua_isstring(L, 1) && !lua_isuserdata(L, 1)) text = "the error value " + text + " (no string)";
  push(L, text);
  return 1;
}

// Returns the text of the error value on top of the stack. Making the text may fail, too: in __tostring, or for lack of memory.
std::string error_text(lua_State* L, int status) {
  if (status == LUA_ERRMEM) return kNoMemory;
  const char* type = luaL_typename(L, -1);
  lua_pushcfunction(L, guarded<text_of_error>);
  lua_pushvalue(L, -2);
  const int made = lua_pcall(L, 1, 1, 0);
  const char* text = lua_type(L, -1) == LUA_TSTRING ? lua_tostring(L, -1) : nullptr;
  std::string result = text ? text : "no string";
  if (made == LUA_ERRMEM) result = kNoMemory;
  else if (made != 0) result = fmt::format("the error value is a {} whose __tostring failed itself: {}", type, result);
  lua_pop(L, 1);
  return result;
}

}  // namespace

void Failure::raise() const {
  switch (family) {
    case Family::aborted:
      throw Aborted(message);
    case Family::fault:
      throw Fault(message);
    case Family::misuse:
      throw Misuse(message);
    case Family::error:
      break;
  }
  throw Error(message);
}

std::optional<Failure> protected_call(lua_State* L, int arguments, int results) {
  BindingState& state = binding_state(L);
  const int handler = lua_gettop(L) - arguments;
  lua_pushcfunction(L, note_traceback);
  lua_insert(L, handler);
  const int status = lua_pcall(L, arguments, results, handler);
  lua_remove(L, handler);
  if (status == 0) return std::nullopt;
  Failure failure{error_text(L, status), state.last_traceback, Family::error};
  state.last_raised = failure.message;
  if (failure.message == state.last_message) failure.family = state.last_family;
  lua_pop(L, 1);
  return failure;
}

}  // namespace zt::lua
