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

// Returns whether the text begins with a place in a script, "gpt.lua:7: ".
static bool has_place(std::string_view text) {
  const size_t number = text.find(':') + 1, end = text.find_first_not_of("0123456789", number);
  return number > 1 && end != std::string_view::npos && end > number && text.substr(end).starts_with(": ");
}

// A message that Lua code raised, in a function that C++ called, begins with its place already.
void push_error(lua_State* L, Context& context, const std::exception& error) {
  const std::string text = describe(error);
  const bool is_placed = has_place(context.last_raised) && text.starts_with(context.last_raised);
  context.last_message = (is_placed ? std::string() : script_position(L, context)) + text;
  context.last_family = family_of(error);
  lua_pushlstring(L, context.last_message.data(), context.last_message.size());
}

namespace detail {

int call_guarded(lua_State* L, Function function) {
  return guard(L, function);
}

}  // namespace detail

}  // namespace zt::lua
