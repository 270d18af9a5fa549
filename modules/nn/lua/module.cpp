// The binding of zt.nn. Each function takes one table of options.
#include "inner_layer.h"
#include "layer_list.h"
#include "layers/layers.h"
#include "lua_layer.h"
#include "zt/base/options.h"

namespace zt::nn {

namespace {

struct SequentialOptions {
  int64_t seed = 0;
};

// nn.sequential{layer, {"name", layer}, {"name", {layer, ...}}, ..., seed = 1}. read_layers (layer_list.h) reads the layers.
int sequential(lua_State* L) {
  static const auto kSchema = Schema<SequentialOptions>("nn.sequential")
                                  .optional("seed", &SequentialOptions::seed, "seed of the initial weights and of dropout");
  if (!lua_istable(L, 1)) misuse("nn.sequential takes a table of layers, got {}", luaL_typename(L, 1));
  Value::List entries;
  const int count = static_cast<int>(lua_objlen(L, 1));
  for (int place = 1; place <= count; ++place) {
    lua_rawgeti(L, 1, place);
    entries.push_back(with_context([&] { return fmt::format("{}: entry {}", kSchema.name(), place); },
                                   [&] { return lua::check_value(L, -1); }));
    lua_pop(L, 1);
  }
  Value::Table options;
  for (lua_pushnil(L); lua_next(L, 1) != 0; lua_pop(L, 1)) {
    if (lua_type(L, -2) == LUA_TSTRING) options[lua_tostring(L, -2)] = lua::check_value(L, -1);
  }
  auto layers = with_context([] { return kSchema.name(); }, [&] { return read_layers(entries); });
  lua::push(L, std::make_shared<Model>(std::move(layers), static_cast<uint64_t>(kSchema.parse(options).seed)));
  return 1;
}

}  // namespace

}  // namespace zt::nn

ZT_LUA_MODULE(nn) {
  using namespace zt::nn;  // NOLINT: only for the names registered here
  using zt::lua::made;
  module.function<made<make_linear>>("linear")
      .function<made<make_embedding>>("embedding")
      .function<made<make_layernorm>>("layernorm")
      .function<made<make_rmsnorm>>("rmsnorm")
      .function<made<make_attention>>("attention")
      .function<made<make_attention_block>>("attention_block")
      .function<made<make_mlp>>("mlp")
      .function<made<make_grouped_mlp>>("grouped_mlp")
      .function<made<make_dropout>>("dropout")
      .function<made<make_block>>("block")
      .function<made<make_residual>>("residual")
      .function<made<make_lm_loss>>("lm_loss")
      .function<made<make_lm_logprobs>>("lm_logprobs")
      .function<made<make_value_head>>("value_head")
      .function<made<make_cross_entropy>>("cross_entropy")
      .function<made<make_gpt>>("gpt")
      .function<made<make_lua_layer>>("layer")
      .function<sequential>("sequential");
  open_context_type(module);
  open_inner_layer(module);
}
