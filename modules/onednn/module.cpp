// What `require "zt.onednn"` gives.
#include "sgemm.h"
#include "zt/lua/state.h"

namespace {

// onednn.register(): makes the gemm provider "onednn" known; returns the path of the library.
int register_onednn(lua_State* L) {
  zt::lua::push(L, zt::onednn::register_provider());
  return 1;
}

}  // namespace

ZT_LUA_MODULE(onednn) {
  module.function<register_onednn>("register");
}
