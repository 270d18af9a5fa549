// The parts of the module zt.pipe.
#pragma once

#include "zt/lua/state.h"

namespace zt::pipe {

void open_schedules(lua::Module& module);  // the types of schedules, and pipe.F, B, I, W, overlap, check
void open_recipes(lua::Module& module);    // pipe.schedule
void open_split(lua::Module& module);      // pipe.split

}  // namespace zt::pipe
