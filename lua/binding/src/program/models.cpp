// Methods of a model: model:append, model:parameters, model:initialise and others.
#include "program/open.h"
#include "program/values.h"
#include "zt/base/tensor.h"
#include "zt/model/model.h"

namespace zt::lua {

namespace {

int append(lua_State* L) {
  const auto model = check<Model>(L, 1);
  const auto layer = check<Layer>(L, 2);
  const std::string name = is_absent(L, 3) ? std::to_string(model->positions().size()) : check_string(L, 3);
  push(L, model->append({name, layer}));
  return 1;
}

int describe_parameters(lua_State* L) {
  const auto model = check<Model>(L, 1);
  Value::List list;
  for (const ParamInfo& param : model->info().params) {
    list.push_back(Value::Table{{"name", param.name},
                                {"shape", to_list(param.shape)},
                                {"numel", param.numel()},
                                {"room", param.room},
                                {"trainable", param.trainable},
                                {"format", word_of(param.pack.format)},
                                {"unit", model->info().units[param.unit].name}});
  }
  push(L, Value(list));
  return 1;
}

// model:freeze("^embedding") and model:unfreeze(...), before a program is made: take a regular expression on parameter names and
// return the number of matching parameters.
template <bool is_trainable>
int set_trainable(lua_State* L) {
  push(L, check<Model>(L, 1)->set_trainable(check_string(L, 2), is_trainable));
  return 1;
}

int numel(lua_State* L) {
  int64_t total = 0;
  for (const ParamInfo& param : check<Model>(L, 1)->info().params) total += param.numel();
  push(L, total);
  return 1;
}

// model:initialise{["embed.weight"] = tensor}: sets the values with which later trainers begin, instead of random ones. The
// tensors are whole, also where each rank holds a part of the parameter.
int initialise(lua_State* L) {
  const auto model = check<Model>(L, 1);
  const Value values = check_value(L, 2);
  const auto* table = values.get_if<Value::Table>();
  if (!table) misuse("argument 1: a table of tensors by parameter name expected, got {}", values.type_name());
  std::vector<std::string> names;
  for (const ParamInfo& param : model->info().params) names.push_back(param.name);
  std::vector<std::pair<size_t, at::Tensor>> given;
  for (const auto& [name, value] : *table) {
    const auto found = std::find(names.begin(), names.end(), name);
    if (found == names.end()) misuse("the model has no parameter '{}'{}", name, suggest(name, names));
    const auto* tensor = value.get_if<at::Tensor>();
    if (!tensor) misuse("the value of '{}' must be a tensor, got {}", name, value.type_name());
    const auto index = static_cast<size_t>(found - names.begin());
    if (model->info().params[index].is_packed())
      misuse("parameter '{}' is packed, and such parameters begin as zeros: set it by trainer:set_parameter", name);
    const auto& shape = model->info().params[index].shape;
    if (tensor->sizes() != at::IntArrayRef(shape))
      misuse("parameter '{}' is [{}], the tensor is {}", name, fmt::join(shape, ", "), describe(*tensor));
    given.emplace_back(index, *tensor);
  }
  for (const auto& [index, tensor] : given) model->params()[index]->init = init_tensor(tensor);
  return 0;
}

// Returns whether values between layers have a share of the tokens on each rank, as with sequence_parallel.
bool cuts_stream(const Model& model) {
  return std::ranges::any_of(model.info().positions, [](const PositionInfo& position) {
    return std::ranges::any_of(position.outputs, [](const Output& output) { return !output.cut_over.empty(); });
  });
}

Value texts_of(const MadeFromOptions& made) {
  Value::Table options;
  for (const auto& [name, text] : made.option_texts) options[name] = text;
  return options;
}

// Returns the options of the model and of its layers, in the order in which they run.
Value description(const Model& model) {
  Value::List layers;
  for (size_t p = 0; p < model.positions().size(); ++p) {
    const PositionInfo& info = model.info().positions[p];
    layers.push_back(Value::Table{{"name", info.name}, {"kind", info.kind}, {"options", texts_of(*model.positions()[p].layer)}});
  }
  return Value::Table{{"options", texts_of(model)}, {"layers", layers}};
}

int state(lua_State*) {
  misuse("a model has no values, because several trainers may share it, each with its own: call trainer:state() instead");
}

}  // namespace

void open_models(Module& module) {
  module.type<Model>()
      .method<append>("append")
      .method<describe_parameters>("parameters")
      .method<numel>("numel")
      .method<state>("state")
      .method<set_trainable<false>>("freeze")
      .method<set_trainable<true>>("unfreeze")
      .method<initialise>("initialise")
      .getter<&Model::options>("options")
      .getter<description>("description")
      .getter<[](const Model& model) { return to_list(model.info().inner_axes); }>("inner_axes")
      .getter<cuts_stream>("cuts_stream")
      .metamethod<[](const Model& model) { return summary(model.info()); }>("__tostring");
  module.type<Layer>();
}

}  // namespace zt::lua
