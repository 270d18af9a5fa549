#include "lua_sequential.h"

#include "layer_list.h"
#include "zt/base/options.h"

namespace zt::nn {

namespace {

struct SequentialOptions {
  int64_t seed = 0;
};

}  // namespace

std::shared_ptr<Model> read_sequential(lua_State* L, int index) {
  static const auto kSchema = Schema<SequentialOptions>("nn.sequential")
                                  .optional("seed", &SequentialOptions::seed, "seed of the initial weights and of dropout");
  if (!lua_istable(L, index)) misuse("nn.sequential takes a table of layers, got {}", luaL_typename(L, index));
  Value::List entries;
  const int count = static_cast<int>(lua_objlen(L, index));
  for (int place = 1; place <= count; ++place) {
    lua_rawgeti(L, index, place);
    entries.push_back(with_context([&] { return fmt::format("{}: entry {}", kSchema.name(), place); },
                                   [&] { return lua::check_value(L, -1); }));
    lua_pop(L, 1);
  }
  Value::Table options;
  for (lua_pushnil(L); lua_next(L, index) != 0; lua_pop(L, 1)) {
    if (lua_type(L, -2) == LUA_TSTRING) options[lua_tostring(L, -2)] = lua::check_value(L, -1);
  }
  auto layers = with_context([] { return kSchema.name(); }, [&] { return read_layers(entries); });
  return std::make_shared<Model>(std::move(layers), static_cast<uint64_t>(kSchema.parse(options).seed));
}

}  // namespace zt::nn
