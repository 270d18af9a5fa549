// The option `mlp` of nn.gpt: a Lua function that gives the layers which replace the MLP of a block.
#pragma once

#include <optional>
#include <vector>

#include "zt/lua/state.h"
#include "zt/model/model.h"

namespace zt::nn {

// Calls mlp(block). Returns nullopt if it returns nil, else the layers of the list that it returns (layer_list.h). Throws the
// function's own error, or Misuse for another result; also if the last layer does not output `h`, or if a layer outputs
// `residual`, which carries the residual stream past them. Each message begins with the block and the function's place.
std::optional<std::vector<NamedLayer>> layers_from(lua::Callable& mlp, int64_t block);

}  // namespace zt::nn
