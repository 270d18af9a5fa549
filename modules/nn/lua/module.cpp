// The binding of zt.nn. Each function takes one table of options.
#include "layers/layers.h"
#include "lua_context.h"
#include "lua_layer.h"
#include "lua_sequential.h"

namespace zt::nn {

namespace {

int sequential(lua_State* L) {
  lua::push(L, read_sequential(L, 1));
  return 1;
}

}  // namespace

static void open_nn(lua::Module& module) {
  module.function<lua::made<make_linear>>("linear")
      .function<lua::made<make_embedding>>("embedding")
      .function<lua::made<make_layernorm>>("layernorm")
      .function<lua::made<make_rmsnorm>>("rmsnorm")
      .function<lua::made<make_attention>>("attention")
      .function<lua::made<make_attention_block>>("attention_block")
      .function<lua::made<make_mlp>>("mlp")
      .function<lua::made<make_grouped_mlp>>("grouped_mlp")
      .function<lua::made<make_dropout>>("dropout")
      .function<lua::made<make_block>>("block")
      .function<lua::made<make_residual>>("residual")
      .function<lua::made<make_lm_loss>>("lm_loss")
      .function<lua::made<make_cross_entropy>>("cross_entropy")
      .function<lua::made<make_gpt>>("gpt")
      .function<lua::made<make_lua_layer>>("layer")
      .function<sequential>("sequential");
  open_context_type(module);
}

}  // namespace zt::nn

ZT_LUA_MODULE(nn) {
  zt::nn::open_nn(module);
}
