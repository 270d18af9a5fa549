// Starting Lua and running a script: what the host needs.
//
//   lua_State* L = lua::new_state(World::from_environment(), {.lua = "...", .modules = "..."});
//   if (auto error = lua::run_script(L, "exp.lua", {"--steps", "10"})) show(*error);
//   lua_close(L);
#pragma once

#include <functional>
#include <lua.hpp>
#include <optional>
#include <string>
#include <vector>

#include "zt/process/world.h"

namespace zt::lua {

// Search patterns, separated by ';', put in front of Lua's own: "/opt/zt/share/ztoolkit/lua/?.lua;..." and "/opt/zt/lib/?.so".
struct Paths {
  std::string lua;      // package.path
  std::string modules;  // package.cpath
};

// A new state with the standard libraries, strict globals and `zt.core` preloaded. It belongs to the calling thread; several
// states in several threads are independent. Closed by lua_close. Fault when there is no memory for it.
lua_State* new_state(World world, const Paths& paths);

struct ScriptError {
  std::string message;      // begins with "file:line: " where Lua knew it; a value that is no string is shown as text
  std::string traceback;    // "stack traceback:\n\t..."; empty when the file could not be loaded
  bool is_aborted = false;  // a zt::Aborted passed through: another rank has the cause
};

// Loads and runs the file on the calling thread with `arg` and `...` as plain Lua sets them: arg[0] is the path, arg[1] and on
// are `args`, arg[-1] and down the words `before` the path on the command line, the last first. nullopt: it ran to its end.
std::optional<ScriptError> run_script(lua_State* L, const std::string& path, const std::vector<std::string>& args,
                                      const std::vector<std::string>& before = {});

// Has `action` called when the script of L's state has come to its end or calls os.exit(0): on its thread, before the state is
// closed, in the order of these calls. What it throws is the script's error.
void at_script_end(lua_State* L, std::function<void()> action);
// Calls them, each once. run_script does; for whoever ends a script otherwise. Throws what they throw.
void end_script(lua_State* L);

}  // namespace zt::lua

// The table of `require "zt.core"`: operators, constructors and the system functions that lua/zt is made of.
extern "C" int luaopen_zt_core(lua_State* L);
