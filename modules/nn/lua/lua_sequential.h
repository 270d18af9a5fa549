// nn.sequential{layer, {"name", layer}, ..., seed = 1} in Lua.
#pragma once

#include <memory>

#include "zt/lua/state.h"
#include "zt/model/model.h"

namespace zt::nn {

// Makes a model from the table at stack index `index`. Layers without a name are named by their index, from "0".
std::shared_ptr<Model> read_sequential(lua_State* L, int index);

}  // namespace zt::nn
