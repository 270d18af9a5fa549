// The binding of zt.nn. Each function takes one table of options.
#include "layers/layers.h"
#include "lua_context.h"
#include "lua_layer.h"
#include "lua_sequential.h"

namespace zt::nn {

namespace {

template <auto make>
int bind(lua_State* L) {
  lua::push(L, make(lua::check_value(L, 1)));
  return 1;
}

int sequential(lua_State* L) {
  lua::push(L, read_sequential(L, 1));
  return 1;
}

}  // namespace

static void open_nn(lua::Module& module) {
  module.function<bind<make_linear>>("linear")
      .function<bind<make_embedding>>("embedding")
      .function<bind<make_layernorm>>("layernorm")
      .function<bind<make_rmsnorm>>("rmsnorm")
      .function<bind<make_attention>>("attention")
      .function<bind<make_attention_block>>("attention_block")
      .function<bind<make_mlp>>("mlp")
      .function<bind<make_grouped_mlp>>("grouped_mlp")
      .function<bind<make_dropout>>("dropout")
      .function<bind<make_block>>("block")
      .function<bind<make_residual>>("residual")
      .function<bind<make_lm_loss>>("lm_loss")
      .function<bind<make_cross_entropy>>("cross_entropy")
      .function<bind<make_gpt>>("gpt")
      .function<bind<make_lua_layer>>("layer")
      .function<sequential>("sequential");
  open_context_type(module);
}

}  // namespace zt::nn

ZT_LUA_MODULE(nn) {
  zt::nn::open_nn(module);
}
