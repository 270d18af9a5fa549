// Finds and opens modules for `require "zt.NAME"`.
#pragma once

#include <lua.hpp>
#include <string>
#include <vector>

namespace zt::host {

// Installs two searchers for names "zt.*" and preloads "zt.host".
//   The first searcher runs before Lua's own for C modules. It searches package.cpath, too; its errors say what to do.
//   The last searcher adds the nearest name to the message that a module was not found.
//   `require "zt.host"` is for the Lua library: modules() lists the C modules on the path, plan() returns where
//   `ztoolkit plan` writes.
void install_loader(lua_State* L);

struct ModuleFile {
  std::string name;  // "zt.comm"
  std::string path;
};

// Returns the C modules zt.* on package.cpath, sorted by name. If a name occurs twice, the first on the path counts.
std::vector<ModuleFile> find_modules(lua_State* L);

}  // namespace zt::host
