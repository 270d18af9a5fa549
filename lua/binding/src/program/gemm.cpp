// zt.gemm: which library multiplies matrices.
#include "program/open.h"
#include "zt/gemm_choice.h"
#include "zt/options.h"

namespace zt::lua {

namespace {

struct Options {
  std::string provider;
};

const Schema<Options>& schema() {
  static const auto schema = Schema<Options>("zt.gemm").required(
      "provider", &Options::provider,
      "'default', 'auto' (trials before products of a new kind run) or the name of a provider, such as 'aten'",
      [](const std::string& name) {
        std::vector<std::string> known = gemm_providers();
        known.insert(known.end(), {"default", "auto"});
        return one_of(known)(name);
      });
  return schema;
}

// zt.gemm{provider = "auto"} says who multiplies; with or without an option it returns the choice in use: {float32 = "aten",
// ...}.
int gemm(lua_State* L) {
  if (!is_absent(L, 1)) request_gemm(schema().parse(check_value(L, 1)).provider);
  push(L, gemm_choice().to_value());
  return 1;
}

}  // namespace

void open_gemm(Module& module) {
  module.function<gemm>("gemm");
}

}  // namespace zt::lua
