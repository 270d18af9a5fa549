// A module with another ABI number than this SDK.
#include "zt/lua/state.h"

extern "C" __attribute__((visibility("default"))) int luaopen_zt_wrong_abi(lua_State* L) {
  return zt::lua::detail::open_module(L, {"wrong_abi", ZT_ABI + 41, ZT_BUILD_ID}, [](zt::lua::Module&) {});
}
