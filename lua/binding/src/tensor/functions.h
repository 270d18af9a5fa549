// Functions of zt.core on tensors: constructors, generators, scopes, gradient mode.
#pragma once

#include "zt/lua/state.h"

namespace zt::lua {

void open_constructors(Module& module);  // tensor, rand, randn, float, generator, manual_seed, default_dtype, set_default_dtype
void open_scopes(Module& module);        // scope, no_grad, grad

}  // namespace zt::lua
