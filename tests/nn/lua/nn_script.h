// A fixture with a Lua state that has the module nn.
#pragma once

#include "binding/script.h"

extern "C" int luaopen_zt_nn(lua_State* L);

namespace zt::test {

// Scripts have the global `nn`, the module.
class NnScript : public Script {
 protected:
  void SetUp() override {
    Script::SetUp();
    lua_pushstring(L, "nn");
    lua_pushcfunction(L, luaopen_zt_nn);
    lua_call(L, 0, 1);
    lua_rawset(L, LUA_GLOBALSINDEX);
  }
};

}  // namespace zt::test
