// The modules that can be loaded, and why others cannot.
#pragma once

#include <lua.hpp>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace zt::host {

struct ModuleReport {
  std::string name;  // "zt.comm"
  std::string path;
  int functions = 0;            // in the module's table
  nlohmann::ordered_json info;  // what the module says of itself in its field _INFO; null: nothing
  std::string error;            // why it cannot be loaded; empty: it can
};

// Opens every module on package.cpath.
std::vector<ModuleReport> list_modules(lua_State* L);

// One line a module, aligned.
std::string module_table(const std::vector<ModuleReport>& modules);

}  // namespace zt::host
