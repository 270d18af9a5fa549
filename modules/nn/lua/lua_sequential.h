// nn.sequential{layer, {"name", layer}, {"name", {layer, ...}}, ..., seed = 1} in Lua.
#pragma once

#include <memory>

#include "zt/lua/state.h"
#include "zt/model/model.h"

namespace zt::nn {

// Makes a model from the table at stack index `index`, whose layers read_layers (layer_list.h) reads.
std::shared_ptr<Model> read_sequential(lua_State* L, int index);

}  // namespace zt::nn
