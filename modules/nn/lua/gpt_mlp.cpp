#include "gpt_mlp.h"

#include <algorithm>

#include "layer_list.h"

namespace zt::nn {

namespace {

bool outputs(const NamedLayer& entry, const std::string& name) {
  const std::vector<Output> all = entry.layer->io().outputs;
  return std::ranges::find(all, name, &Output::name) != all.end();
}

void check_outputs(const std::vector<NamedLayer>& layers) {
  const NamedLayer& last = layers.back();
  if (!outputs(last, "h")) {
    misuse(
        "its last layer '{}' ({}) does not output 'h', which is added to the residual stream: end the list with a layer that does",
        last.name, last.layer->kind());
  }
  for (const NamedLayer& entry : layers) {
    if (!outputs(entry, "residual")) continue;
    misuse("its layer '{}' ({}) outputs 'residual', the name of the residual stream to which 'h' is added: choose another name",
           entry.name, entry.layer->kind());
  }
}

std::optional<std::vector<NamedLayer>> checked_layers(const Value& returned) {
  if (returned.is_nil()) return std::nullopt;
  const auto* list = returned.get_if<Value::List>();
  if (!list) {
    misuse("it returned {}: return nil for an ordinary MLP, or a list of layers, such as {{{{\"mlp\", nn.mlp{{...}}}}}}",
           returned.type_name());
  }
  std::vector<NamedLayer> layers = read_layers(*list);
  check_outputs(layers);
  return layers;
}

}  // namespace

std::optional<std::vector<NamedLayer>> layers_from(lua::Callable& mlp, int64_t block) {
  const auto about = [&] { return fmt::format("nn.gpt: the function 'mlp' at {}, for block {}", mlp.place(), block); };
  return with_context(about, [&] {
    lua_State* L = mlp.begin();
    const lua::StackScope scope(L, lua_gettop(L) - 1);
    lua::push(L, block);
    mlp.call(1, 1);
    return checked_layers(lua::check_value(L, -1));
  });
}

}  // namespace zt::nn
