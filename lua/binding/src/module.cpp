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

}  // namespace

Module& Module::from_lua(const char* name, const char* source) {
  lua_pushstring(L_, source);
  lua_pushcclosure(L_, call_lua, 1);
  lua_setfield(L_, -2, name);
  return *this;
}

Module& Module::table(const char* name, void (*fill)(Module&)) {
  lua_newtable(L_);
  fill(*this);
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

void set_field_function(lua_State* L, const char* name, lua_CFunction function) {
  lua_pushcfunction(L, function);
  lua_setfield(L, -2, name);
}

int open_module(lua_State* L, const BuildInfo& info, void (*open)(Module&)) {
  return guard(L, [&](lua_State*) {
    check_build(info);
    lua_newtable(L);
    Module module(L);
    open(module);
    return 1;
  });
}

}  // namespace detail

}  // namespace zt::lua
