#include "guard.h"

#include "zt/error.h"
#include "zt/lua/state.h"

namespace zt::lua {

namespace {

Family family_of(const std::exception& error) {
  if (dynamic_cast<const Aborted*>(&error)) return Family::aborted;
  if (dynamic_cast<const Fault*>(&error)) return Family::fault;
  if (dynamic_cast<const Misuse*>(&error)) return Family::misuse;
  return Family::error;
}

// "file:line: " of the innermost Lua code. The direct caller has none when the native function was called last
// (return f(x) is a tail call) or by pcall.
std::string position(lua_State* L) {
  lua_Debug frame;
  for (int level = 1; lua_getstack(L, level, &frame); ++level) {
    lua_getinfo(L, "Sl", &frame);
    if (frame.currentline > 0) return fmt::format("{}:{}: ", frame.short_src, frame.currentline);
  }
  return "";
}

}  // namespace

void push_error(lua_State* L, Context& context, const std::exception& error) {
  context.last_message = position(L) + describe(error);
  context.last_family = family_of(error);
  lua_pushlstring(L, context.last_message.data(), context.last_message.size());
}

namespace detail {

int call_guarded(lua_State* L, Function function) {
  return guard(L, function);
}

}  // namespace detail

}  // namespace zt::lua
