#include "lua_sequential.h"

#include "zt/base/options.h"

namespace zt::nn {

namespace {

std::shared_ptr<Layer> as_layer(const Value& value) {
  const auto* object = value.get_if<Object>();
  return object ? object->as<Layer>() : nullptr;
}

NamedLayer named_layer(const Value& entry, int place) {
  if (auto layer = as_layer(entry)) return {std::to_string(place - 1), layer};
  const auto* pair = entry.get_if<Value::List>();
  const auto* name = pair && pair->size() == 2 ? (*pair)[0].get_if<std::string>() : nullptr;
  auto layer = name ? as_layer((*pair)[1]) : nullptr;
  if (!layer) misuse("nn.sequential: entry {} must be a layer or {{\"name\", layer}}, got {}", place, entry.type_name());
  return {*name, layer};
}

struct SequentialOptions {
  int64_t seed = 0;
};

}  // namespace

std::shared_ptr<Model> read_sequential(lua_State* L, int index) {
  static const auto kSchema = Schema<SequentialOptions>("nn.sequential")
                                  .optional("seed", &SequentialOptions::seed, "seed of the initial weights and of dropout");
  if (!lua_istable(L, index)) misuse("nn.sequential takes a table of layers, got {}", luaL_typename(L, index));
  std::vector<NamedLayer> layers;
  const int count = static_cast<int>(lua_objlen(L, index));
  for (int place = 1; place <= count; ++place) {
    lua_rawgeti(L, index, place);
    layers.push_back(named_layer(lua::check_value(L, -1), place));
    lua_pop(L, 1);
  }
  Value::Table options;
  for (lua_pushnil(L); lua_next(L, index) != 0; lua_pop(L, 1)) {
    if (lua_type(L, -2) == LUA_TSTRING) options[lua_tostring(L, -2)] = lua::check_value(L, -1);
  }
  return std::make_shared<Model>(std::move(layers), static_cast<uint64_t>(kSchema.parse(options).seed));
}

}  // namespace zt::nn
