// The context of a layer written in Lua: the last argument of its forward.
#pragma once

#include <functional>
#include <set>
#include <string>

#include "zt/lua/state.h"
#include "zt/model/layer.h"

namespace zt::nn {

// A handle that is valid only during the forward; later uses throw Misuse. Methods: ctx:batch(name), ctx:has_batch(name),
// ctx:loss(name, sum, per), ctx:metric(name, sum, count), ctx:dropout(x, p, options), ctx:gather_tokens(x, use),
// ctx:own_tokens(x), and the functions of zt/model/axis_ops.h. Fields: ctx.mode, ctx.step, ctx.position, ctx.micro_batch,
// ctx.recompute, ctx.tokens.
struct LuaContext {
  Context* context = nullptr;                   // null after the forward
  const std::set<std::string>* axes = nullptr;  // along which the layer may communicate
  at::Device device = at::kCPU;                 // of the layer's tensors: ctx:batch gives fields there
  // The batch fields with a number per token, if the layer has the option `context`: ctx:batch("positions") is always there.
  const std::vector<std::string>* token_fields = nullptr;
  std::string token_axis = {};  // along which it cuts tokens; empty on one rank
  int dropouts = 0;             // number of ctx:dropout calls so far: the index of the next dropout
};

// The argument of a layer's `count`: batch(name) returns a field of a micro-batch. Valid only during the call.
struct LuaBatch {
  BatchField field;
};

// Returns the context that is argument 1. Throws Misuse after the forward.
std::shared_ptr<LuaContext> check_context(lua_State* L);
// Returns where the tokens of this micro-batch are.
TokenPlaces places_of(const LuaContext& handle);

void open_context_type(lua::Module& module);
// Adds the functions that communicate: those of zt/model/axis_ops.h, gather_tokens and own_tokens.
void add_axis_functions(lua::TypeBuilder<LuaContext>& type);

}  // namespace zt::nn

namespace zt {
ZT_OBJECT(nn::LuaContext)
ZT_OBJECT(nn::LuaBatch)
}  // namespace zt
