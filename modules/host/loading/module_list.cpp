#include "module_list.h"

#include "loader.h"
#include "zt/build_id.h"
#include "zt/lua/state.h"

namespace zt::host {

namespace {

// Requires the module's table on top of the stack.
void describe_table(lua_State* L, ModuleReport& report) {
  lua_pushnil(L);
  while (lua_next(L, -2) != 0) {
    if (lua_isfunction(L, -1)) ++report.functions;
    lua_pop(L, 1);
  }
  lua_pushliteral(L, "_INFO");
  lua_rawget(L, -2);
  if (!lua_isnil(L, -1)) report.info = lua::check_value(L, -1).to_json();
  lua_pop(L, 1);
}

ModuleReport report_on(lua_State* L, const ModuleFile& file) {
  ModuleReport report;
  report.name = file.name;
  report.path = file.path;
  lua_getglobal(L, "require");
  lua::push(L, file.name);
  if (lua_pcall(L, 1, 1, 0) != 0) {
    report.error = lua_isstring(L, -1) ? lua_tostring(L, -1) : "it failed with an error that is not a string";
  } else if (lua_istable(L, -1)) {
    describe_table(L, report);
  }
  lua_pop(L, 1);
  return report;
}

}  // namespace

std::vector<ModuleReport> list_modules(lua_State* L) {
  std::vector<ModuleReport> reports;
  for (const ModuleFile& file : find_modules(L)) reports.push_back(report_on(L, file));
  return reports;
}

std::string module_table(const std::vector<ModuleReport>& modules) {
  std::string text;
  for (const ModuleReport& module : modules) {
    if (module.error.empty()) {
      text += fmt::format("{:14} ABI {}  build {}  {:3} functions  {}\n", module.name, ZT_ABI, ZT_BUILD_ID, module.functions,
                          module.path);
    } else {
      text += fmt::format("{:14} cannot be loaded: {}\n", module.name, module.error);
    }
  }
  return text.empty() ? "no modules on the path\n" : text;
}

}  // namespace zt::host
