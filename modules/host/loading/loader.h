// Finds and opens modules for `require "zt.NAME"`.
#pragma once

#include <lua.hpp>
#include <optional>
#include <string>
#include <vector>

namespace zt::host {

// What `ztoolkit plan` prints and writes, where the first step would begin.
struct PlanRequest {
  int descriptor = -1;                     // file descriptor to which the plan is written
  bool is_json = false;                    // write it as JSON
  std::string costs = {};                  // simulate the step with these costs (see find_costs); empty: do not
  std::string picture = {};                // file for a picture of the simulated step; empty: none
  std::string trace = {};                  // file for its trace; empty: none
  int ranks_per_machine = 0;               // of the simulated machine; 0: as its costs say
  std::vector<std::string> compared = {};  // schedules of a pipeline with which to simulate the step, too
};

// Installs two searchers for names "zt.*" and preloads "zt.host".
//   The first searcher runs before Lua's own for C modules. It searches package.cpath, too; its errors say what to do.
//   The last searcher adds the nearest name to the message that a module was not found.
//   `require "zt.host"` is for the Lua library: modules() lists the C modules on the path, plan() returns the fields of `plan`,
//   or nil if there is none.
void install_loader(lua_State* L, const std::optional<PlanRequest>& plan);

struct ModuleFile {
  std::string name;  // "zt.comm"
  std::string path;
};

// Returns the C modules zt.* on package.cpath, sorted by name. If a name occurs twice, the first on the path counts.
std::vector<ModuleFile> find_modules(lua_State* L);

}  // namespace zt::host
