// The module zt.gemm registers the GEMM providers. It has no functions; scripts choose a provider by zt.gemm{provider = ...}.
#include "onednn_library.h"
#include "providers.h"
#include "zt/lua/state.h"

ZT_LUA_MODULE(gemm) {
  zt::register_gemm_providers();
  const zt::onednn::Library& onednn = zt::onednn::library();
  const bool is_there = onednn.sgemm != nullptr;
  zt::lua::push(module.state(), zt::Value::Table{{"oneDNN", is_there ? onednn.path : "not offered: " + onednn.problem}});
  lua_setfield(module.state(), -2, "_INFO");  // for `ztoolkit info`
}
