// Hooks: functions by which the Lua library above completes the binding. The binding itself requires no Lua file.
#pragma once

#include <lua.hpp>

namespace zt::lua {

enum class Hook {
  dry_step,     // function(trainer, batch, parts): called in a dry run where the first step would begin
  model_state,  // function(trainer): returns the result of model:state()
};

// Pushes the function that the Lua library has registered with zt.core.set_hook. Throws: Misuse when there is none; the message
// begins with `call`, such as "model:state()".
void push_hook(lua_State* L, Hook hook, const char* call);

}  // namespace zt::lua
