// A module that links to a library that is not on the library search path.
#include "zt/lua/state.h"

int from_the_missing_library();

ZT_LUA_MODULE(missing_library) {
  lua_pushinteger(module.state(), from_the_missing_library());
}
