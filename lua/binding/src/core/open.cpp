// zt.core: one flat table of the C++ functions for Lua. An operator is added to the table at its first use.
#include "core/open.h"

#include <algorithm>

#include "arguments.h"
#include "hooks.h"
#include "ops/call.h"
#include "program/open.h"
#include "tensor/functions.h"
#include "zt/base/error.h"
#include "zt/base/options.h"
#include "zt/lua/runtime.h"
#include "zt/lua/state.h"

namespace zt::lua {

namespace {

// Returns the names of the modules on the path, without "zt.". Empty if the Lua library is not loaded.
std::vector<std::string> module_names(lua_State* L) {
  if (!push_hook_if_set(L, Hook::module_names)) return {};
  lua_call(L, 0, 1);
  std::vector<std::string> names;
  convert(check_value(L, -1), "the names of modules", names);
  lua_pop(L, 1);
  for (std::string& name : names) name.erase(0, std::string_view("zt.").size());
  return names;
}

// Throws Misuse that names the nearest module, function or operator. If argument 1 is the table zt.core, the functions in it are
// nearer than operators of the same distance.
[[noreturn]] void refuse_name(lua_State* L, const std::string& name) {
  const std::vector<std::string> modules = module_names(L);
  const auto is_module = [&](const std::string& text) { return std::ranges::find(modules, text) != modules.end(); };
  if (is_module(name))
    misuse("zt has no function or operator '{0}', but there is a module of this name: write local {0} = require \"zt.{0}\"",
           name);
  std::vector<std::string> names;
  if (lua_istable(L, 1)) {
    for (lua_pushnil(L); lua_next(L, 1) != 0; lua_pop(L, 1)) {
      if (lua_type(L, -2) == LUA_TSTRING) names.emplace_back(lua_tostring(L, -2));
    }
    std::ranges::sort(names);  // so that the message is the same on every rank
  }
  names.insert(names.end(), modules.begin(), modules.end());
  const auto& operators = operator_names();
  names.insert(names.end(), operators.begin(), operators.end());
  const std::string found = nearest(name, names);
  if (is_module(found)) misuse("zt has no function or operator '{}': did you mean the module of require \"zt.{}\"?", name, found);
  misuse("zt has no function or operator '{}'{}", name, suggest(name, names));
}

// Pushes the operator `name`. Throws Misuse if there is none.
void push_function(lua_State* L, const std::string& name) {
  if (!push_operator(L, name, CallStyle::function)) refuse_name(L, name);
}

// core.op("add")
int find_function(lua_State* L) {
  push_function(L, check_string(L, 1));
  return 1;
}

// __index(core, name)
int index_core(lua_State* L) {
  if (lua_type(L, 2) != LUA_TSTRING) misuse("zt is indexed by names, got {}", type_text(L, 2));
  push_function(L, check_string(L, 2));
  lua_pushvalue(L, 2);
  lua_pushvalue(L, -2);
  lua_rawset(L, 1);
  return 1;
}

int list_operators(lua_State* L) {
  push_list(L, operator_names());
  return 1;
}

}  // namespace

void open_operators(Module& module) {
  module.function<find_function>("op").function<list_operators>("ops");
  lua_State* L = module.state();
  lua_createtable(L, 0, 1);
  lua_pushcfunction(L, guarded<index_core>);
  lua_setfield(L, -2, "__index");
  lua_setmetatable(L, -2);
}

}  // namespace zt::lua

ZT_LUA_MODULE(core) {
  zt::lua::open_constructors(module);
  zt::lua::open_scopes(module);
  zt::lua::open_json(module);
  zt::lua::open_files(module);
  zt::lua::open_hooks(module);
  zt::lua::open_system(module);
  zt::lua::open_program(module);
  zt::lua::open_operators(module);
}
