// zt.gemm: the choice of the library that multiplies matrices.
#include "program/open.h"
#include "zt/base/options.h"
#include "zt/gemm/gemm_choice.h"

namespace zt::lua {

namespace {

struct GemmRequest {
  std::string provider;
};

const Schema<GemmRequest>& gemm_schema() {
  static const auto schema = Schema<GemmRequest>("zt.gemm").required(
      "provider", &GemmRequest::provider,
      "'default' (chosen by processor and kind of GEMM) or the name of a provider, such as 'aten'", [](const std::string& name) {
        std::vector<std::string> known = gemm_providers();
        known.emplace_back("default");
        return one_of(known)(name);
      });
  return schema;
}

// zt.gemm{provider = "aten"} chooses one provider for all GEMMs that it supports. With or without options, the call returns the
// current choice: {float32 = "aten", ...}.
int gemm(lua_State* L) {
  if (!is_absent(L, 1)) use_gemm_choice(fixed_gemm_choice(gemm_schema().parse(check_value(L, 1)).provider));
  push(L, to_value(gemm_choice()));
  return 1;
}

}  // namespace

void open_gemm(Module& module) {
  module.function<gemm>("gemm");
}

}  // namespace zt::lua
