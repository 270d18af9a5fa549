// A selection that a script gives: select = function(scores) ... end.
#pragma once

#include <memory>

#include "routing/selection.h"
#include "zt/lua/state.h"

namespace zt::moe {

// Returns a selection that calls function(scores). `scores`: [samples, tokens, experts] in host memory, a copy. The function
// returns int64 [samples, tokens, top_k]: the experts of each token, all different, or -1 for an empty route; anything else is a
// Misuse. It may not draw from the Lua state's random generator. It is not called for scores that are not finite, because such a
// step fails or is skipped. Threads: only the thread of the function's lua_State.
std::shared_ptr<Selection> make_script_selection(std::shared_ptr<lua::Callable> function);

}  // namespace zt::moe
