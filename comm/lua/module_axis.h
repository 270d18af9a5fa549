// The part of the module's Lua types that is long.
#pragma once

#include "zt/lua/state.h"

namespace zt::comm {

// Fills the type Axis.
void open_axis(lua::Module& module);

}  // namespace zt::comm
