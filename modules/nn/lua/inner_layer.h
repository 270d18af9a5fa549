// Layers within a layer that is written in Lua.
#pragma once

#include <memory>
#include <string>

#include "lua_context.h"
#include "zt/model/layer.h"

namespace zt::nn {

// What a script sees of an inner layer during the forward of the outer one: self.NAME, with forward(inputs..., ctx).
struct InnerLayer {
  std::string name;  // for messages
  std::shared_ptr<Layer> layer;
  std::shared_ptr<LuaContext> outer;  // whose context is null after the outer forward
  size_t calls = 0;                   // so far: each call has random numbers of its own
  uint64_t place = 0;                 // among the inner layers
};

// Throws Misuse for a layer that needs a position of its own in a model.
void check_inner(const std::string& name, const Layer& layer);
// Gives the inner layer's parameters names within the outer one, and adds its losses to `io`.
void enclose(const std::string& name, Layer& layer, Io& io);

void open_inner_layer(lua::Module& module);

}  // namespace zt::nn

namespace zt {
ZT_OBJECT(nn::InnerLayer)
}  // namespace zt
