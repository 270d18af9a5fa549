#include <algorithm>
#include <string>
#include <vector>

#include "arguments.h"
#include "guard.h"
#include "zt/base/error.h"
#include "zt/lua/state.h"

namespace zt::lua {

namespace {

int call_lua(lua_State* L) {
  const int arguments = lua_gettop(L);
  lua_getglobal(L, "require");
  lua_pushvalue(L, lua_upvalueindex(1));
  lua_call(L, 1, 1);
  lua_insert(L, 1);
  lua_call(L, arguments, LUA_MULTRET);
  return lua_gettop(L);
}

// __index(module, name), for a name that the module lacks. Upvalue: the module's name.
int refuse_unknown(lua_State* L) {
  const std::string module = lua_tostring(L, lua_upvalueindex(1));
  if (lua_type(L, 2) != LUA_TSTRING) misuse("{} is indexed by names, got {}", module, type_text(L, 2));
  std::vector<std::string> names;
  for (lua_pushnil(L); lua_next(L, 1) != 0; lua_pop(L, 1)) {
    if (lua_type(L, -2) == LUA_TSTRING && lua_tostring(L, -2)[0] != '_') names.emplace_back(lua_tostring(L, -2));
  }
  std::ranges::sort(names);  // so that the message is the same on every rank
  const std::string name = lua_tostring(L, 2);
  misuse("{} has no '{}'{}", module, name, suggest(name, names));
}

// Makes the table on top of the stack refuse names that it lacks, unless it has a metatable.
void make_strict(lua_State* L, const std::string& module) {
  if (lua_getmetatable(L, -1) != 0) return lua_pop(L, 1);
  lua_newtable(L);
  push(L, module);
  lua_pushcclosure(L, guarded<refuse_unknown>, 1);
  lua_setfield(L, -2, "__index");
  lua_setmetatable(L, -2);
}

}  // namespace

Module& Module::from_lua(const char* name, const char* source) {
  lua_pushstring(L_, source);
  lua_pushcclosure(L_, call_lua, 1);
  lua_setfield(L_, -2, name);
  return *this;
}

Module& Module::table(const char* name, void (*fill)(Module&)) {
  lua_newtable(L_);
  Module nested(L_, name_ + "." + name);
  fill(nested);
  make_strict(L_, nested.name_);
  lua_setfield(L_, -2, name);
  return *this;
}

namespace detail {

namespace {

void check_build(const BuildInfo& info) {
  if (info.abi == ZT_ABI && std::string_view(info.build_id) == ZT_BUILD_ID) return;
  fault("the module zt.{} was built against SDK ABI {}, build id {}; this ztoolkit has ABI {}, build id {}: rebuild the module",
        info.module, info.abi, info.build_id, ZT_ABI, ZT_BUILD_ID);
}

}  // namespace

void set_field_function(lua_State* L, const char* name, lua_CFunction function, std::optional<int> number) {
  if (number) lua_pushinteger(L, *number);
  lua_pushcclosure(L, function, number ? 1 : 0);
  lua_setfield(L, -2, name);
}

int open_module(lua_State* L, const BuildInfo& info, void (*open)(Module&)) {
  return guard(L, [&](lua_State*) {
    check_build(info);
    lua_newtable(L);
    const std::string name = std::string("zt.") + info.module;
    Module module(L, name);
    open(module);
    make_strict(L, name);
    return 1;
  });
}

}  // namespace detail

int upvalue_number(lua_State* L) {
  return static_cast<int>(lua_tointeger(L, lua_upvalueindex(1)));
}

}  // namespace zt::lua
