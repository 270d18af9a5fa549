// A module with another build id, as if it was built against other headers.
#include "zt/lua/state.h"

extern "C" __attribute__((visibility("default"))) int luaopen_zt_wrong_build(lua_State* L) {
  return zt::lua::detail::open_module(L, {"wrong_build", ZT_ABI, "0123456789abcdef"}, [](zt::lua::Module&) {});
}
