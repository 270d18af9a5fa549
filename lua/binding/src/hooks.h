// Hooks: Lua functions that the Lua library registers and the binding calls. So the binding requires no Lua file.
#pragma once

#include <lua.hpp>

#include "zt/lua/state.h"

namespace zt::lua {

enum class Hook {
  dry_step,       // function(trainer, batch, parts): ends a dry run in place of its first step
  module_names,   // function(): returns the names of all modules, such as "zt.nn", for the message about an unknown name
  moving_pass,    // function(options): returns a pass whose homes hold data, for trainer:evict()
  script_failed,  // function(): is called once the script has ended with an error, before that is reported. Its errors are
                  // ignored
  trainer_state,  // function(trainer): returns the result of trainer:state()
};

void open_hooks(Module& module);  // zt.core.set_hook

// Pushes the function that the Lua library has registered with zt.core.set_hook. Throws Misuse if there is none; the message
// begins with `call`, such as "trainer:state()".
void push_hook(lua_State* L, Hook hook, const char* call);
// Pushes the function and returns true; or pushes nothing and returns false if there is none.
bool push_hook_if_set(lua_State* L, Hook hook);

}  // namespace zt::lua
