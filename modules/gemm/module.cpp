// The module zt.gemm registers the GEMM providers. It has no functions; scripts choose a provider by zt.gemm{provider = ...}.
#include "providers.h"
#include "zt/lua/state.h"

ZT_LUA_MODULE(gemm) {
  (void)module;
  zt::register_gemm_providers();
}
