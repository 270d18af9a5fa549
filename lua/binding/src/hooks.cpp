#include "hooks.h"

#include <algorithm>
#include <string>
#include <vector>

#include "zt/base/error.h"

namespace zt::lua {

namespace {

// Names of the hooks, in the order of the enum. The registry holds a hook's function under the key "zt.hook.NAME".
const std::vector<std::string> kHookNames{"dry_step", "module_names", "moving_pass", "script_failed", "trainer_state"};

std::string registry_key(const std::string& name) {
  return "zt.hook." + name;
}

// set_hook(name, function)
int set_hook(lua_State* L) {
  const std::string name = check_string(L, 1);
  check_function(L, 2);
  if (std::find(kHookNames.begin(), kHookNames.end(), name) == kHookNames.end()) {
    misuse("there is no hook '{}'{}", name, suggest(name, kHookNames));
  }
  lua_pushvalue(L, 2);
  lua_setfield(L, LUA_REGISTRYINDEX, registry_key(name).c_str());
  return 0;
}

}  // namespace

bool push_hook_if_set(lua_State* L, Hook hook) {
  lua_getfield(L, LUA_REGISTRYINDEX, registry_key(kHookNames[static_cast<size_t>(hook)]).c_str());
  if (lua_isfunction(L, -1)) return true;
  lua_pop(L, 1);
  return false;
}

void push_hook(lua_State* L, Hook hook, const char* call) {
  if (push_hook_if_set(L, hook)) return;
  misuse("{} is completed by the Lua library, which is not loaded: write require \"zt\" in the script", call);
}

void open_hooks(Module& module) {
  module.function<set_hook>("set_hook");
}

}  // namespace zt::lua
