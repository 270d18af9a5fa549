// zt.core: one flat table of the C++ functions for Lua. An operator is added to the table at its first use.
#include "core/open.h"

#include "arguments.h"
#include "ops/call.h"
#include "program/open.h"
#include "tensor/functions.h"
#include "zt/base/error.h"
#include "zt/lua/runtime.h"

namespace zt::lua {

namespace {

// Pushes the operator `name`, or throws Misuse that suggests the nearest name. If argument 1 is the table zt.core, its names may
// be suggested, too.
void push_function(lua_State* L, const std::string& name) {
  if (push_operator(L, name, CallStyle::function)) return;
  std::vector<std::string> names = operator_names();
  if (lua_istable(L, 1)) {
    for (lua_pushnil(L); lua_next(L, 1) != 0; lua_pop(L, 1)) {
      if (lua_type(L, -2) == LUA_TSTRING) names.emplace_back(lua_tostring(L, -2));
    }
  }
  misuse("zt has no function or operator '{}'{}", name, suggest(name, names));
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
  const auto& names = operator_names();
  lua_createtable(L, static_cast<int>(names.size()), 0);
  for (size_t i = 0; i < names.size(); ++i) {
    push(L, names[i]);
    lua_rawseti(L, -2, static_cast<int>(i + 1));
  }
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
