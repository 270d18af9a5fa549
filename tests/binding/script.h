// A test fixture with a Lua state, and helpers to run code in it.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "zt/lua/runtime.h"
#include "zt/lua/state.h"

namespace zt::test {

class Script : public ::testing::Test {
 protected:
  void SetUp() override { L = lua::new_state({}, {}); }
  void TearDown() override {
    if (L) lua_close(L);
  }

  // Runs `code`. Returns "", or the text of the error. The chunk is named "test" in messages.
  std::string run(const std::string& code) {
    if (luaL_loadbuffer(L, code.data(), code.size(), "=test") != 0 || lua_pcall(L, 0, 0, 0) != 0) {
      const char* text = lua_tostring(L, -1);
      std::string message = text ? text : "(no string)";
      lua_pop(L, 1);
      return message;
    }
    return "";
  }

  template <lua::Function function>
  void set(const char* name) {
    lua_pushstring(L, name);
    lua_pushcfunction(L, lua::guarded<function>);
    lua_rawset(L, LUA_GLOBALSINDEX);
  }

  lua_State* L = nullptr;
};

}  // namespace zt::test
