// Finds and opens the modules that `require "zt.NAME"` asks for.
#pragma once

#include <lua.hpp>
#include <string>
#include <vector>

namespace zt::host {

// Puts a searcher for names "zt.*" in front of Lua's own for C modules: the same search on package.cpath, with messages that
// say what to do. In the message that a module was not found, a last one proposes the nearest name. The Lua library gets
// `require "zt.host"`: modules() lists the names of the C modules on the path, plan() says where `ztoolkit plan` writes.
void install_loader(lua_State* L);

struct ModuleFile {
  std::string name;  // "zt.comm"
  std::string path;
};

// The C modules zt.* on package.cpath, by name; of one name the first on the path.
std::vector<ModuleFile> find_modules(lua_State* L);

}  // namespace zt::host
