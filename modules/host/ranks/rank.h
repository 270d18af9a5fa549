// Runs one rank: opens a Lua state, runs the script, ends the rank.
#pragma once

#include <functional>
#include <lua.hpp>
#include <optional>
#include <string>
#include <vector>

#include "loading/loader.h"
#include "loading/paths.h"
#include "zt/process/world.h"

namespace zt::host {

struct Script {
  std::string path;
  std::vector<std::string> arguments;
  std::vector<std::string> before;       // words of the command line before the path
  std::optional<PlanRequest> plan = {};  // of `ztoolkit plan`
};

// Returns a new Lua state with the host's part of the runtime: search paths and the module loader. The caller closes it with
// lua_close.
lua_State* open_state(const World& world, const Paths& paths, const std::optional<PlanRequest>& plan = {});

// Runs `script` in a fresh Lua state on the calling thread.
//
// If the script ends normally, closes the state and returns 0.
// If the script fails, reports the error and returns 1. The state stays open: objects in it may wait for other ranks when they
// are destroyed.
// If the script calls os.exit, closes the state and calls `finish` with the status. `finish` must not return.
int run_rank(const World& world, const Paths& paths, const Script& script, const std::function<void(int status)>& finish);

}  // namespace zt::host
