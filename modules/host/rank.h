// One rank: a Lua state, a script, an end.
#pragma once

#include <functional>
#include <lua.hpp>
#include <string>
#include <vector>

#include "paths.h"
#include "zt/process/world.h"

namespace zt::host {

struct Script {
  std::string path;
  std::vector<std::string> arguments;
  std::vector<std::string> before;  // the words of the command line in front of the path
};

// A rank's Lua state with the host's part of the runtime: paths and the loader of modules. Closed by lua_close.
lua_State* open_state(const World& world, const Paths& paths);

// Runs `script` in a fresh Lua state on the calling thread.
//
// Returns 0 after the state was closed. When the script fails, tells the user, leaves the state as it is (other ranks may
// be waited for by what it holds) and returns 1. When the script calls os.exit, closes the state and calls `finish` with
// the status, which must not return.
int run_rank(const World& world, const Paths& paths, const Script& script, const std::function<void(int status)>& finish);

}  // namespace zt::host
