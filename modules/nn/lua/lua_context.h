// The context of a layer written in Lua: what its forward gets as last argument.
#pragma once

#include <functional>
#include <string>

#include "zt/lua/state.h"
#include "zt/model/layer.h"

namespace zt::nn {

// A handle that is dead after the forward. ctx:batch(name), ctx:has_batch(name), ctx:loss(name, sum, per), ctx:dropout(x, p),
// ctx.mode, ctx.step, ctx.position, ctx.micro_batch, ctx.recompute.
struct LuaContext {
  Context* context = nullptr;
  int dropouts = 0;  // how many ctx:dropout there were: each has a slot of its own
};

// What a layer's `count` gets: batch(name) is a field of the rank's whole batch. Dead after the call.
struct LuaBatch {
  std::function<at::Tensor(const std::string&)> field;
};

void open_context_type(lua::Module& module);

}  // namespace zt::nn

namespace zt {
ZT_OBJECT(nn::LuaContext)
ZT_OBJECT(nn::LuaBatch)
}  // namespace zt
