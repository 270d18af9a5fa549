// The Lua type Axis.
#pragma once

#include "zt/lua/state.h"

namespace zt::comm {

// Adds the methods of Axis to the module.
void open_axis(lua::Module& module);

}  // namespace zt::comm
