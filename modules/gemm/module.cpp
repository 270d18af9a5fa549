// require "zt.gemm": registers the GEMM providers. It has no functions; zt.gemm{provider = ...} names one of them.
#include "providers.h"
#include "zt/lua/state.h"

ZT_LUA_MODULE(gemm) {
  (void)module;
  zt::register_gemm_providers();
}
