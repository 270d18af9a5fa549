#include "info.h"

#include <ATen/Version.h>

#include <lua.hpp>
#include <memory>

#include "loading/module_list.h"
#include "machine.h"
#include "ranks/rank.h"
#include "zt/base/machine.h"
#include "zt/build_id.h"
#include "zt/gemm/gemm_choice.h"

namespace zt::host {

namespace {

using Json = nlohmann::ordered_json;

std::string luajit_version(lua_State* L) {
  lua_getglobal(L, "jit");
  lua_getfield(L, -1, "version");
  const std::string version = lua_isstring(L, -1) ? lua_tostring(L, -1) : "";
  lua_pop(L, 2);
  return version;
}

Json versions(lua_State* L) {
  return {{"ztoolkit", ZT_VERSION},
          {"ABI", ZT_ABI},
          {"build", ZT_BUILD_ID},
          {"compiler", ZT_COMPILER},
          {"LibTorch", ZT_LIBTORCH_VERSION},
          {"LibTorch CPU code", at::get_cpu_capability()},
          {"MKL", at::get_mkl_version()},
          {"oneDNN", at::get_mkldnn_version()},
          {"LuaJIT", luajit_version(L)}};
}

Json machine() {
  const Cpu cpu = find_cpu();
  const MachineMemory memory = machine_memory();
  const auto gigabytes = [](int64_t bytes) { return fmt::format("{:.1f} GB", static_cast<double>(bytes) / 1e9); };
  return {{"CPU", cpu.model},
          {"CPU features", fmt::format("{}", fmt::join(cpu.features, " "))},
          {"cores", cpu.cores},
          {"cores for this process", cpu.allowed},
          {"memory", gigabytes(memory.whole)},
          {"memory available", gigabytes(memory.free)}};
}

Json gpu() {
  const Gpus gpus = find_gpus();
  Json out{{"CUDA code", ZT_HAS_CUDA ? "compiled in" : "not compiled in (nvcc was not found)"}};
  if (!gpus.driver.empty()) out["driver supports CUDA"] = gpus.driver;
  if (!gpus.problem.empty()) out["GPU"] = "none: " + gpus.problem;
  for (size_t i = 0; i < gpus.names.size(); ++i) out[fmt::format("GPU {}", i)] = gpus.names[i];
  return out;
}

// Returns the choice of GEMM providers. Requires that the module gemm has been opened.
Json gemm_choices() {
  return to_value(gemm_choice()).to_json();
}

Json set_variables() {
  Json out = Json::object();
  for (const std::string& variable : find_environment()) {
    const size_t equals = variable.find('=');
    out[variable.substr(0, equals)] = variable.substr(equals + 1);
  }
  return out;
}

Json module_json(const ModuleReport& module) {
  Json out{{"path", module.path}};
  if (!module.error.empty()) {
    out["error"] = module.error;
    return out;
  }
  out["ABI"] = ZT_ABI;
  out["build"] = ZT_BUILD_ID;
  out["functions"] = module.functions;
  if (module.info.is_object()) out.update(module.info);
  return out;
}

std::string text_of(const Json& value) {
  return value.is_string() ? value.get<std::string>() : value.dump();
}

}  // namespace

Json collect_info(const Paths& paths) {
  const std::unique_ptr<lua_State, decltype(&lua_close)> L(open_state(World{}, paths), lua_close);
  Json modules = Json::object();
  for (const ModuleReport& module : list_modules(L.get())) modules[module.name] = module_json(module);
  return {{"versions", versions(L.get())},    {"machine", machine()},           {"GPU", gpu()},
          {"GEMM providers", gemm_choices()}, {"environment", set_variables()}, {"modules", modules}};
}

std::string info_text(const Json& info) {
  std::string text;
  for (const auto& [section, facts] : info.items()) {
    text += section + "\n";
    for (const auto& [name, value] : facts.items()) {
      if (!value.is_object()) {
        text += fmt::format("  {:24} {}\n", name, text_of(value));
        continue;
      }
      text += fmt::format("  {}\n", name);
      for (const auto& [key, fact] : value.items()) text += fmt::format("    {:22} {}\n", key, text_of(fact));
    }
  }
  return text;
}

}  // namespace zt::host
