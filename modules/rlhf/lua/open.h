// The parts of the module's binding.
#pragma once

#include "zt/lua/state.h"

namespace zt::rlhf {

void open_rows(lua::Module& module);
void open_advantages(lua::Module& module);

}  // namespace zt::rlhf
