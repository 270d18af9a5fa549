#include "lua_layer.h"

#include <algorithm>
#include <set>

#include "inner_layer.h"
#include "parts/params.h"
#include "zt/base/options.h"

namespace zt::nn {

namespace {

std::shared_ptr<Param> param_of(const std::string& name, const std::string& path, const Value& value) {
  const auto* tensor = value.get_if<at::Tensor>();
  if (!tensor || !tensor->is_floating_point()) wrong_type(path, "a floating-point tensor or a Param", value);
  return make_param(name, tensor->sizes().vec(), init_tensor(*tensor), tensor->dim() >= 2, {});
}

struct CutOptions {
  std::shared_ptr<Axis> axis;
  int dim = 0;
  std::vector<Value> groups;
};

struct TokenCutOptions {
  std::shared_ptr<Axis> axis;
  std::string layout = "balanced";
  std::vector<std::string> fields = TokenCut{}.fields;
};

// Returns no cut for an axis of one rank. Adds the axis to `named`.
std::optional<TokenCut> read_token_cut(const Value& value, std::set<std::string>& named) {
  const TokenCutOptions options =
      Schema<TokenCutOptions>("nn.layer.context")
          .required("axis", &TokenCutOptions::axis, "mesh axis over whose ranks the tokens of samples are cut")
          .optional("layout", &TokenCutOptions::layout, "\"balanced\" or \"contiguous\"", one_of({"balanced", "contiguous"}))
          .optional("fields", &TokenCutOptions::fields, "names of the batch fields with a number per token")
          .parse(value);
  named.insert(options.axis->name);
  if (options.axis->size == 1) return {};
  return TokenCut{options.axis->name, options.layout == "balanced", options.fields};
}

// Returns the names of the axes of several ranks. Throws Misuse for a joined axis.
std::vector<std::string> read_axes(const char* option, const std::vector<std::shared_ptr<Axis>>& axes) {
  std::vector<std::string> names;
  for (const auto& axis : axes) {
    if (axis->names.size() > 1)
      misuse("nn.layer.{}: '{}' joins several axes, and a layer communicates along single ones: list them", option, axis->name);
    if (axis->size > 1) names.push_back(axis->name);
  }
  return names;
}

struct CutParamOptions {
  Value values;
  Value cut;
};

CutGroup read_group(const std::string& path, const Value& value) {
  if (const auto* rows = value.get_if<int64_t>()) return {*rows, 1};
  return Schema<CutGroup>(path)
      .required("size", &CutGroup::size, "number of rows", at_least(0))
      .optional("unit", &CutGroup::unit, "rows that stay together, such as those of a head", at_least(1))
      .parse(value);
}

AxisPlacement read_cut(const std::string& path, const Value& value) {
  const CutOptions cut = Schema<CutOptions>(path)
                             .required("axis", &CutOptions::axis, "mesh axis whose ranks have a share each")
                             .optional("dim", &CutOptions::dim, "the dim that is cut, from 0", at_least(0))
                             .optional("groups", &CutOptions::groups, "consecutive rows that are cut each by itself")
                             .parse(value);
  AxisPlacement placement{cut.axis->name, Placement::sharded, cut.dim, cut.axis->size};
  for (const Value& group : cut.groups) placement.groups.push_back(read_group(path + ".groups", group));
  return placement;
}

// `axes`: those along which the layer communicates.
std::shared_ptr<Param> read_param(const std::string& name, const Value& value, const std::set<std::string>& axes) {
  const std::string path = "nn.layer.params." + name;
  const auto* object = value.get_if<Object>();
  if (object && object->as<Param>()) return object->as<Param>();
  if (!value.get_if<Value::Table>()) return param_of(name, path, value);
  const CutParamOptions options =
      Schema<CutParamOptions>(path)
          .required("values", &CutParamOptions::values, "initial values of the whole tensor")
          .required("cut", &CutParamOptions::cut, "how it is cut: {axis =, dim =, groups =}, or a list of such tables")
          .parse(value);
  const auto param = param_of(name, path + ".values", options.values);
  const auto* list = options.cut.get_if<Value::List>();
  for (const Value& cut : list ? *list : Value::List{options.cut}) param->placements.push_back(read_cut(path + ".cut", cut));
  with_context([&] { return path + ".cut"; }, [&] { check_placements(*param); });
  for (const AxisPlacement& on : param->placements) {
    if (!axes.contains(on.axis))
      misuse("{}: it is cut along '{}', which neither `axes` nor `tensor_axes` lists: the ranks must communicate to use it", path,
             on.axis);
  }
  std::erase_if(param->placements, [](const AxisPlacement& on) { return on.parts == 1; });
  return param;
}

struct IoOptions {
  std::optional<std::vector<std::string>> inputs;
  std::optional<std::vector<Value>> outputs;
  Value::Table losses;
  std::vector<std::string> metrics;
};

Output read_output(const Value& value) {
  static const auto kSchema = Schema<Output>("nn.layer.io.outputs")
                                  .required("name", &Output::name, "name of the value")
                                  .optional("differentiable", &Output::differentiable, "whether a gradient flows through it");
  if (const auto* name = value.get_if<std::string>()) return {*name, true};
  return kSchema.parse(value);
}

struct LossOptions {
  std::string per;
  bool adds_over_tokens = false;
};

LossInfo read_loss(const std::string& name, const Value& value) {
  const std::string path = "nn.layer.io.losses." + name;
  if (const auto* word = value.get_if<std::string>()) return {name, parse_per(*word)};
  if (!value.get_if<Value::Table>()) wrong_type(path, "\"token\", \"sample\" or {per =, adds_over_tokens =}", value);
  const LossOptions options =
      Schema<LossOptions>(path)
          .required("per", &LossOptions::per, "\"token\" or \"sample\"")
          .optional("adds_over_tokens", &LossOptions::adds_over_tokens, "the loss of a sample is the sum of those of its tokens")
          .parse(value);
  return {name, parse_per(options.per), options.adds_over_tokens};
}

Io read_io(const Value::Table& table) {
  static const auto kSchema =
      Schema<IoOptions>("nn.layer.io")
          .optional("inputs", &IoOptions::inputs, "names of the values that the layer reads")
          .optional("outputs", &IoOptions::outputs, "names of the values that the layer makes")
          .optional("losses", &IoOptions::losses, "the loss terms that it adds, by name: \"token\" or \"sample\"")
          .optional("metrics", &IoOptions::metrics, "names of the means that it adds to, by ctx:metric(name, sum, count)");
  const IoOptions options = kSchema.parse(table);
  Io io;
  if (options.inputs) io.inputs = *options.inputs;
  for (const auto& [name, per] : options.losses) io.losses.push_back(read_loss(name, per));
  for (const std::string& name : options.metrics) io.stats.push_back({name, 2});
  if (!options.outputs) return io;
  io.outputs.clear();
  for (const auto& output : *options.outputs) io.outputs.push_back(read_output(output));
  return io;
}

}  // namespace

LuaLayer::LuaLayer(const LuaLayerOptions& options)
    : forward_(options.forward), count_(options.count), io_(read_io(options.io)), kind_(options.kind) {
  defined_at_ = options.defined_at ? *options.defined_at : forward_->place();
  const auto add_axis = [this](const std::string& name) {
    if (std::ranges::find(axes_, name) == axes_.end()) axes_.push_back(name);
  };
  for (const std::string& name : read_axes("axes", options.axes)) add_axis(name);
  tensor_axes_ = read_axes("tensor_axes", options.tensor_axes);
  for (const std::string& name : tensor_axes_) add_axis(name);
  if (options.context) token_cut_ = read_token_cut(*options.context, named_axes_);
  if (token_cut_) add_axis(token_cut_->axis);
  for (const auto& list : {options.axes, options.tensor_axes}) {
    for (const auto& axis : list) named_axes_.insert(axis->name);
  }
  for (const auto& [name, value] : options.params) params_.emplace_back(name, read_param(name, value, named_axes_));
  for (const auto& [name, layer] : options.layers) {
    if (options.params.contains(name))
      misuse("nn.layer: '{}' is a name of `params` and of `layers`: self has one of each name", name);
    for (const auto& [other, known] : layers_) {
      if (known == layer) misuse("nn.layer.layers: '{}' and '{}' are one layer: give it once, and call it twice", other, name);
    }
    enclose(name, *layer, io_);
    for (const std::string& axis : layer->axes()) add_axis(axis);
    const LayerExtras& extras = extras_of(*layer);
    for (const std::string& axis : extras.tensor_axes()) tensor_axes_.push_back(axis);
    if (const auto cut = extras.token_cut()) token_cut_ = cut;
    layers_.emplace_back(name, layer);
  }
}

Params LuaLayer::params() const {
  Params all;
  for (const auto& [name, param] : params_) all.push_back(param);
  for (const auto& [name, layer] : layers_) {
    for (const auto& param : layer->params()) all.push_back(param);
  }
  return all;
}

Stats LuaLayer::report(const Stats& sums) const {
  Stats means;
  for (const auto& [name, sum] : sums) means[name] = sum[0] / sum[1];
  return means;
}

void LuaLayer::fill_self(lua_State* L, int self, const std::shared_ptr<LuaContext>& context) const {
  for (const auto& [name, param] : params_) {
    lua::push(L, context->context->param(*param));
    lua_setfield(L, self, name.c_str());
  }
  for (size_t place = 0; place < layers_.size(); ++place) {
    const auto& [name, layer] = layers_[place];
    lua::push(L, std::make_shared<InnerLayer>(InnerLayer{name, layer, context, 0, place}));
    lua_setfield(L, self, name.c_str());
  }
}

// Invalidates the parameters in `self`: a tensor kept by the script would show data that are gathered into its memory later.
void LuaLayer::end_self(lua_State* L, int self) const {
  for (const auto& [name, param] : params_) {
    lua_pushstring(L, name.c_str());
    lua_rawget(L, self);
    lua::expire_parameter(L, -1);
    lua_pop(L, 1);
  }
}

// Calls the function and adds its place of definition to errors. Lua's own traceback may lack it: `return x:matmul(w)` is a tail
// call, so the frame of the function is gone when matmul fails.
void LuaLayer::call(lua::Callable& function, int arguments, int results) const {
  with_context([this] { return fmt::format("in its function at {}", defined_at_); }, [&] { function.call(arguments, results); });
}

at::Tensor LuaLayer::result(lua_State* L, int index, const Output& output) const {
  if (lua::is_tensor(L, index)) return lua::check_tensor(L, index);
  if (lua_isnil(L, index) && !output.differentiable) return {};
  misuse("the forward of a '{}' layer returned {} for its output '{}': return one tensor per output, {} in total", kind_,
         luaL_typename(L, index), output.name, io_.outputs.size());
}

std::vector<at::Tensor> LuaLayer::forward(at::TensorList in, Context& context) {
  const auto handle = std::make_shared<LuaContext>(LuaContext{&context, named_axes_});
  lua_State* L = forward_->begin();
  const int top = lua_gettop(L) - 1;
  lua_newtable(L);
  const int self = top + 1;
  lua_insert(L, self);  // below the function, so that `self` is still on the stack after the call
  const lua::StackScope scope(L, top, [&] {
    handle->context = nullptr;
    end_self(L, self);
  });
  fill_self(L, self, handle);
  lua_pushvalue(L, self);
  for (const auto& input : in) lua::push(L, input);
  lua::push(L, handle);
  const lua::NoDefaultRandom no_default_random(L);
  const int count = static_cast<int>(io_.outputs.size());
  call(*forward_, static_cast<int>(in.size()) + 2, count + 1);
  if (!lua_isnil(L, self + 1 + count)) {
    misuse("the forward of a '{}' layer returned more values than its {}: name all of them in io = {{outputs = {{...}}}}", kind_,
           count == 1 ? "1 output" : fmt::format("{} outputs", count));
  }
  std::vector<at::Tensor> results;
  for (int i = 0; i < count; ++i) results.push_back(result(L, self + 1 + i, io_.outputs[i]));
  return results;
}

// The tokens that the losses of inner layers count.
Counts LuaLayer::inner_count(const std::function<at::Tensor(const std::string&)>& batch) const {
  Counts total;
  for (const auto& [name, layer] : layers_) {
    const int64_t tokens = layer->count(batch).tokens;
    if (tokens > 0 && total.tokens > 0 && tokens != total.tokens)
      misuse("the inner layer '{}' counts {} valid tokens, and another one {}: give them the same labels", name, tokens,
             total.tokens);
    total.tokens = std::max(total.tokens, tokens);
  }
  return total;
}

Counts LuaLayer::count(const std::function<at::Tensor(const std::string&)>& batch) const {
  if (!count_) return inner_count(batch);
  lua_State* L = count_->begin();
  const auto handle = std::make_shared<LuaBatch>(LuaBatch{batch});
  const lua::StackScope scope(L, lua_gettop(L) - 1, [&] { handle->field = nullptr; });
  lua::push(L, handle);
  call(*count_, 1, 1);
  const int64_t tokens = lua_isnumber(L, -1) ? lua::check_integer(L, -1) : -1;
  if (tokens < 0) misuse("the count of a '{}' layer must return the number of valid tokens in the batch, at least 0", kind_);
  return {tokens, 0};
}

std::shared_ptr<Layer> make_lua_layer(const Value& value) {
  static const auto kSchema =
      Schema<LuaLayerOptions>("nn.layer")
          .required("forward", &LuaLayerOptions::forward, "function(self, inputs..., ctx)")
          .optional("params", &LuaLayerOptions::params, "by name: initial values, or {values =, cut = {axis =, dim =, groups =}}")
          .optional("axes", &LuaLayerOptions::axes, "mesh axes along which it communicates, by ctx:copy_to and the like")
          .optional("tensor_axes", &LuaLayerOptions::tensor_axes, "those whose ranks share its work on the same samples")
          .optional("context", &LuaLayerOptions::context, "{axis =, layout =, fields =}: it works on some tokens of each sample")
          .optional("layers", &LuaLayerOptions::layers, "layers that it runs, by name: self.NAME:forward(inputs..., ctx)")
          .optional("io", &LuaLayerOptions::io, "names of inputs and outputs")
          .optional("count", &LuaLayerOptions::count, "for a loss per token: function(batch) -> number of valid tokens")
          .optional("kind", &LuaLayerOptions::kind, "name of the kind of layer, for reports")
          .optional("options", &LuaLayerOptions::options,
                    "plain values on which `forward` depends: zt.trainer compares them over the ranks")
          .optional("defined_at", &LuaLayerOptions::defined_at,
                    "\"file:line\" for messages; default: where `forward` is defined");
  return kSchema.make(value, [](const LuaLayerOptions& o) { return std::make_shared<LuaLayer>(o); });
}

}  // namespace zt::nn
