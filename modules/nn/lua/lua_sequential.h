// nn.sequential{layer, {"name", layer}, ..., seed = 1} in Lua.
#pragma once

#include <memory>

#include "zt/lua/state.h"
#include "zt/model/model.h"

namespace zt::nn {

// From the table at `index`. Layers without a name are named by their place, from "0".
std::shared_ptr<Model> read_sequential(lua_State* L, int index);

}  // namespace zt::nn
