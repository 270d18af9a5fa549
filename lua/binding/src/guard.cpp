#include "guard.h"

#include <algorithm>
#include <string_view>

#include "zt/base/error.h"
#include "zt/lua/state.h"

namespace zt::lua {

namespace {

Family family_of(const std::exception& error) {
  if (dynamic_cast<const Aborted*>(&error)) return Family::aborted;
  if (dynamic_cast<const Fault*>(&error)) return Family::fault;
  if (dynamic_cast<const Misuse*>(&error)) return Family::misuse;
  return Family::error;
}

bool is_library(const Context& context, std::string_view source) {
  return std::any_of(context.library_folders.begin(), context.library_folders.end(),
                     [&](const std::string& folder) { return source.starts_with(folder); });
}

}  // namespace

std::string script_position(lua_State* L, const Context& context) {
  lua_Debug frame;
  std::string innermost;
  bool is_command = false;  // the outermost frame is the main part of a library file, such as a subcommand's
  for (int level = 1; lua_getstack(L, level, &frame); ++level) {
    lua_getinfo(L, "Sl", &frame);
    if (frame.currentline <= 0) continue;
    std::string place = fmt::format("{}:{}: ", frame.short_src, frame.currentline);
    if (!is_library(context, frame.source)) return place;
    is_command = std::string_view(frame.what) == "main";
    if (innermost.empty()) innermost = std::move(place);
  }
  return is_command ? "" : innermost;
}

void push_error(lua_State* L, Context& context, const std::exception& error) {
  context.last_message = script_position(L, context) + describe(error);
  context.last_family = family_of(error);
  lua_pushlstring(L, context.last_message.data(), context.last_message.size());
}

namespace detail {

int call_guarded(lua_State* L, Function function) {
  return guard(L, function);
}

}  // namespace detail

}  // namespace zt::lua
