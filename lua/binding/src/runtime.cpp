#include "zt/lua/runtime.h"

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <utility>

#include "binding_state.h"
#include "hooks.h"
#include "protected_call.h"
#include "strict.h"
#include "zt/base/error.h"
#include "zt/lua/state.h"

namespace zt::lua {

namespace {

// package.FIELD = prefix .. ";" .. package.FIELD
void put_in_front(lua_State* L, const char* field, const std::string& prefix) {
  if (prefix.empty()) return;
  lua_getglobal(L, "package");
  lua_getfield(L, -1, field);
  const std::string joined = prefix + ";" + lua_tostring(L, -1);
  lua_pop(L, 1);
  push(L, joined);
  lua_setfield(L, -2, field);
  lua_pop(L, 1);
}

void preload(lua_State* L, const char* name, lua_CFunction open) {
  lua_getglobal(L, "package");
  lua_getfield(L, -1, "preload");
  lua_pushcfunction(L, open);
  lua_setfield(L, -2, name);
  lua_pop(L, 2);
}

void set_script_arguments(lua_State* L, const std::string& path, const std::vector<std::string>& args,
                          const std::vector<std::string>& before) {
  lua_createtable(L, static_cast<int>(args.size()), static_cast<int>(before.size()) + 1);
  const auto set = [L](int place, const std::string& word) {
    push(L, word);
    lua_rawseti(L, -2, place);
  };
  set(0, path);
  for (size_t i = 0; i < args.size(); ++i) set(static_cast<int>(i) + 1, args[i]);
  for (size_t i = 0; i < before.size(); ++i) set(static_cast<int>(i) - static_cast<int>(before.size()), before[i]);
  lua_pushliteral(L, "arg");
  lua_insert(L, -2);
  lua_rawset(L, LUA_GLOBALSINDEX);
}

// Lua's panic function: an error occurred outside of every protected call, as when memory runs out in new_state. It must neither
// return nor unwind.
int end_by_panic(lua_State* L) {
  const char* text = lua_tostring(L, -1);
  fmt::print(stderr, "ztoolkit: Lua failed while no script ran: {}\n", text ? text : "(no text)");
  _exit(EXIT_FAILURE);
}

int run_end_of_script(lua_State* L) {
  end_script(L);
  return 0;
}

}  // namespace

lua_State* new_state(World world, const SearchPaths& paths) {
  lua_State* L = luaL_newstate();
  if (!L) fault("cannot make a Lua state: not enough memory (ulimit -v?)");
  lua_atpanic(L, end_by_panic);
  luaL_openlibs(L);
  set_world(L, std::move(world));
  install_strict_globals(L);  // while package.path is still Lua's own
  put_in_front(L, "path", paths.lua);
  put_in_front(L, "cpath", paths.modules);
  preload(L, "zt.core", luaopen_zt_core);
  return L;
}

std::optional<ScriptError> run_script(lua_State* L, const std::string& path, const std::vector<std::string>& args,
                                      const std::vector<std::string>& before) {
  BindingState& state = binding_state(L);
  state.thread = std::this_thread::get_id();
  set_script_arguments(L, path, args, before);
  if (luaL_loadfile(L, path.c_str()) != 0) {
    ScriptError error{lua_tostring(L, -1), "", false};
    lua_pop(L, 1);
    return error;
  }
  luaL_checkstack(L, static_cast<int>(args.size()) + LUA_MINSTACK, "too many arguments for the script");
  for (const auto& arg : args) push(L, arg);
  auto failure = protected_call(L, static_cast<int>(args.size()), 0);
  if (!failure) {
    lua_pushcfunction(L, guarded<run_end_of_script>);
    failure = protected_call(L, 0, 0);
  }
  if (!failure) return std::nullopt;
  if (push_hook_if_set(L, Hook::script_failed)) protected_call(L, 0, 0);
  return ScriptError{std::move(failure->message), std::move(failure->traceback), failure->family == Family::aborted};
}

void at_script_end(lua_State* L, std::function<void()> action) {
  binding_state(L).at_script_end.push_back(std::move(action));
}

void end_script(lua_State* L) {
  for (const auto& action : std::exchange(binding_state(L).at_script_end, {})) action();
}

}  // namespace zt::lua
