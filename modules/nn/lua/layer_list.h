// Lists of layers in Lua, as nn.sequential takes them: {layer, {"name", layer}, {"name", {layer, ...}}, {layer, ...}}.
#pragma once

#include <vector>

#include "zt/base/value.h"
#include "zt/model/model.h"

namespace zt::nn {

// Returns the layers of a list, in order. An entry without a name is named by its index, from "0". A list may stand for a layer:
// its layers have the name of its entry and a dot before their own names, as in "moe.router". Throws Misuse, with the place of
// the entry ("entry 2[1]" is list[2][1] in Lua), for another value, an empty name and an empty inner list.
std::vector<NamedLayer> read_layers(const Value::List& list);

}  // namespace zt::nn
