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

bool is_library(const BindingState& state, std::string_view source) {
  return std::any_of(state.library_folders.begin(), state.library_folders.end(),
                     [&](const std::string& folder) { return source.starts_with(folder); });
}

}  // namespace

std::string script_position(lua_State* L, const BindingState& state) {
  lua_Debug frame;
  std::string innermost;
  bool is_command = false;  // the outermost frame is the main part of a library file, such as a subcommand's
  for (int level = 1; lua_getstack(L, level, &frame); ++level) {
    lua_getinfo(L, "Sl", &frame);
    if (frame.currentline <= 0) continue;
    std::string place = fmt::format("{}:{}: ", frame.short_src, frame.currentline);
    if (!is_library(state, frame.source)) return place;
    is_command = std::string_view(frame.what) == "main";
    if (innermost.empty()) innermost = std::move(place);
  }
  return is_command ? "" : innermost;
}

namespace {

// Returns the frame's line of a traceback, as LuaJIT writes it.
std::string frame_line(const lua_Debug& frame) {
  const std::string_view what = frame.what;
  const std::string place = what == "C" ? "[C]:" : fmt::format("{}:{}:", frame.short_src, frame.currentline);
  if (*frame.namewhat) return fmt::format("\n\t{} in function '{}'", place, frame.name);
  if (what == "main") return fmt::format("\n\t{} in main chunk", place);
  if (what == "C") return fmt::format("\n\t{} in a native function", place);
  return fmt::format("\n\t{} in function <{}:{}>", place, frame.short_src, frame.linedefined);
}

}  // namespace

std::string traceback(lua_State* L, const BindingState& state, std::string_view text) {
  constexpr int kMostFrames = 24;
  std::string lines, natives;
  lua_Debug frame;
  bool is_first = true, shows_library = false;
  int count = 0;
  for (int level = 1; lua_getstack(L, level, &frame) && count <= kMostFrames; ++level) {
    lua_getinfo(L, "Sln", &frame);
    if (std::string_view(frame.what) == "C") {
      natives += frame_line(frame);
      continue;
    }
    const bool is_of_library = is_library(state, frame.source);
    if (std::exchange(is_first, false)) shows_library = is_of_library && text.starts_with(fmt::format("{}:", frame.short_src));
    if (!is_of_library || shows_library) {
      lines += natives + frame_line(frame);
      if (++count == kMostFrames) lines += "\n\t...";
    }
    natives.clear();
  }
  return lines.empty() ? "" : "stack traceback:" + lines;
}

// Returns the name by which a function of a module was called as module:name(...), or an empty string.
static std::string called_as_method(lua_State* L) {
  lua_Debug call;
  if (!lua_getstack(L, 0, &call) || !lua_getinfo(L, "nf", &call)) return "";
  std::string name;
  if (std::string_view(call.namewhat) == "method" && lua_type(L, 1) == LUA_TTABLE) {
    lua_pushstring(L, call.name);
    lua_rawget(L, 1);
    if (lua_rawequal(L, -1, -2) != 0) name = call.name;
    lua_pop(L, 1);
  }
  lua_pop(L, 1);
  return name;
}

// Returns whether the text begins with a place in a script, "gpt.lua:7: ".
static bool has_place(std::string_view text) {
  const size_t number = text.find(':') + 1, end = text.find_first_not_of("0123456789", number);
  return number > 1 && end != std::string_view::npos && end > number && text.substr(end).starts_with(": ");
}

// A message that Lua code raised, in a function that C++ called, begins with its place already.
void push_error(lua_State* L, BindingState& state, const std::exception& error) {
  std::string text = describe(error);
  if (const std::string name = called_as_method(L); !name.empty())
    text = fmt::format("'{0}' is a function of a module: write module.{0}(...) with '.', not module:{0}(...)", name);
  const bool is_placed = has_place(state.last_raised) && text.starts_with(state.last_raised);
  const std::string place = is_placed ? std::string() : script_position(L, state);
  if (!place.empty()) {
    for (size_t at = text.find(place); at != std::string::npos; at = text.find(place, at)) text.erase(at, place.size());
  }
  state.last_message = place + text;
  state.last_family = family_of(error);
  lua_pushlstring(L, state.last_message.data(), state.last_message.size());
}

namespace detail {

int call_guarded(lua_State* L, Function function) {
  return guard(L, function);
}

}  // namespace detail

}  // namespace zt::lua
