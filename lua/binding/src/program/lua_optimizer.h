// Optimizers written in Lua: zt.optimizer.
#pragma once

#include "zt/lua/state.h"

namespace zt::lua {

// zt.optimizer{name, lr, step = function(info, p, g, state) ... end, [states], [weight_decay], [decay_all], [groups]}
int make_lua_optimizer(lua_State* L);

}  // namespace zt::lua
