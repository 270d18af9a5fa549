#include "strict.h"

#include <string_view>
#include <vector>

#include "arguments.h"
#include "zt/base/error.h"
#include "zt/lua/state.h"

namespace zt::lua {

namespace {

// Returns the folders of Lua's own package.path, one per pattern such as "/usr/share/lua/5.1/?.lua".
std::vector<std::string> library_folders(std::string_view path) {
  std::vector<std::string> folders;
  while (!path.empty()) {
    const std::string_view pattern = path.substr(0, path.find(';'));
    path.remove_prefix(std::min(path.size(), pattern.size() + 1));
    if (pattern.starts_with('/')) folders.emplace_back(pattern.substr(0, pattern.find('?')));
  }
  return folders;
}

// Returns whether `caller`, the function that reads or assigns, is from a system library. Upvalue 1: Lua's own package.path.
bool is_library(lua_State* L, const lua_Debug& caller) {
  const std::string_view source = caller.source;  // "@/usr/share/lua/5.1/luaunit.lua"
  for (const auto& folder : library_folders(lua_tostring(L, lua_upvalueindex(1)))) {
    if (source.starts_with("@" + folder)) return true;
  }
  return false;
}

// Finds the function that reads or assigns (level 1). Returns false if there is none.
bool find_caller(lua_State* L, lua_Debug& caller) {
  return lua_getstack(L, 1, &caller) && lua_getinfo(L, "S", &caller);
}

int read_undefined(lua_State* L) {
  lua_Debug caller;
  if (find_caller(L, caller) && is_library(L, caller)) return 0;
  std::vector<std::string> names;
  lua_pushnil(L);
  while (lua_next(L, 1)) {
    names.push_back(text_of(L, -2));
    lua_pop(L, 1);
  }
  const std::string name = text_of(L, 2);
  const std::string near = nearest(name, names);
  misuse("the global '{}' is not defined{}", name, near.empty() ? std::string() : fmt::format(": did you mean '{}'?", near));
}

// lua_Debug::what is "main" at a file's top level, and "C" in library code such as module().
bool may_define(lua_State* L) {
  lua_Debug caller;
  if (!find_caller(L, caller)) return true;
  const std::string_view kind = caller.what;
  return kind == "main" || kind == "C" || is_library(L, caller);
}

int define_global(lua_State* L) {
  if (!may_define(L)) {
    const std::string name = text_of(L, 2);
    misuse("a function assigns the new global '{0}': write 'local {0}', or set it first at the top level of the file", name);
  }
  lua_rawset(L, 1);
  return 0;
}

void set_metamethod(lua_State* L, const char* event, lua_CFunction function) {
  lua_getglobal(L, "package");
  lua_getfield(L, -1, "path");
  lua_pushcclosure(L, function, 1);
  lua_setfield(L, -3, event);
  lua_pop(L, 1);
}

}  // namespace

void install_strict_globals(lua_State* L) {
  lua_pushvalue(L, LUA_GLOBALSINDEX);
  lua_newtable(L);
  set_metamethod(L, "__index", guarded<read_undefined>);
  set_metamethod(L, "__newindex", guarded<define_global>);
  lua_setmetatable(L, -2);
  lua_pop(L, 1);
}

}  // namespace zt::lua
