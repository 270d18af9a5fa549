// Starts Lua and runs a script. The host uses it.
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

// Search patterns, separated by ';': "/opt/zt/share/ztoolkit/lua/?.lua;..." and "/opt/zt/lib/?.so". They go before Lua's own.
struct SearchPaths {
  std::string lua;      // package.path
  std::string modules;  // package.cpath
};

// Returns a new state with the standard libraries, strict globals and `zt.core` preloaded. It belongs to the calling thread;
// states are independent of each other. The caller closes it with lua_close. Throws Fault if there is not enough memory.
lua_State* new_state(World world, const SearchPaths& paths);

struct ScriptError {
  std::string message;      // begins with "file:line: " if Lua knew the position; other values than strings are shown as text
  std::string traceback;    // "stack traceback:\n\t..."; empty if the file could not be loaded
  bool is_aborted = false;  // the error is a zt::Aborted: another rank failed and reports the cause
};

// Loads and runs the file on the calling thread. Returns nullopt if it ran to its end.
// Sets `arg` and `...` as plain Lua does: arg[0] is the path, arg[1] and on are `args`, and arg[-1] and down are the words
// `before` the path on the command line, the last word at -1.
std::optional<ScriptError> run_script(lua_State* L, const std::string& path, const std::vector<std::string>& args,
                                      const std::vector<std::string>& before = {});

// Registers `action` for the end of the script of L's state. Actions run when the script returns or calls os.exit(0), on its
// thread, before the state is closed, in the order of registration. An exception of an action becomes the script's error.
void at_script_end(lua_State* L, std::function<void()> action);
// Runs the registered actions, each once, and throws their exceptions. run_script calls it. Code that ends a script in another
// way, such as os.exit, must call it, too.
void end_script(lua_State* L);

}  // namespace zt::lua

// Opens `require "zt.core"`: a table of operators, constructors and system functions, on which lua/zt is built.
extern "C" int luaopen_zt_core(lua_State* L);
