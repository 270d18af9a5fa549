// Lists the modules on the path, with the error of each module that cannot be loaded.
#pragma once

#include <lua.hpp>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace zt::host {

struct ModuleReport {
  std::string name;  // "zt.comm"
  std::string path;
  int functions = 0;            // number of functions in the module's table
  nlohmann::ordered_json info;  // the module's field _INFO; null if it has none
  std::string error;            // why the module cannot be loaded; empty if it can
};

// Opens every module on package.cpath and reports on it.
std::vector<ModuleReport> list_modules(lua_State* L);

// Returns aligned text, one line per module.
std::string module_table(const std::vector<ModuleReport>& modules);

}  // namespace zt::host
