#include "lua_layer.h"

#include <algorithm>

#include "inner_layer.h"
#include "layer_options.h"
#include "zt/base/options.h"
#include "zt/model/sample_count.h"

namespace zt::nn {

LuaLayer::LuaLayer(const LuaLayerOptions& options)
    : forward_(options.forward), count_(options.count), io_(read_io(options.io)), tokens_(options.tokens), kind_(options.kind) {
  defined_at_ = options.defined_at ? *options.defined_at : forward_->place();
  const auto add_axis = [this](const std::string& name) {
    if (std::ranges::find(axes_, name) == axes_.end()) axes_.push_back(name);
  };
  tensor_axes_ = read_axes("tensor_axes", options.tensor_axes);
  for (const std::string& name : read_axes("axes", options.axes)) {
    add_axis(name);
    if (name == "tp") tensor_axes_.push_back(name);  // by its name its ranks share work, as placement_on says
  }
  for (const std::string& name : tensor_axes_) add_axis(name);
  std::string cutter = "its option 'context'";
  if (options.context) token_cut_ = read_token_cut(*options.context, named_axes_, token_fields_.emplace());
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
    check_inner(name, *layer);
    for (const std::string& axis : layer->axes()) add_axis(axis);
    const LayerExtras& extras = extras_of(*layer);
    for (const std::string& axis : extras.tensor_axes()) tensor_axes_.push_back(axis);
    take_token_cut(extras.token_cut(), fmt::format("the inner layer '{}'", name), cutter);
    layers_.emplace_back(name, layer);
  }
  for (const auto& [name, layer] : layers_) enclose(name, *layer, io_);  // last: it changes the inner layers, and cannot fail
}

void LuaLayer::take_token_cut(const std::optional<TokenCut>& cut, const std::string& of, std::string& cutter) {
  if (!cut) return;
  if (token_cut_ && *token_cut_ != *cut)
    misuse("nn.layer: {} and {} cut the tokens of samples differently ({}, and {}): give both the same axis, layout and fields",
           cutter, of, token_cut_->text(), cut->text());
  if (!token_cut_) cutter = of;
  token_cut_ = cut;
}

bool LuaLayer::needs_whole_samples() const {
  return std::ranges::any_of(layers_, [](const auto& named) { return extras_of(*named.second).needs_whole_samples(); });
}

// A position has the keys and values of one layer, so two inner layers that keep some are refused with `all`.
TokenScope LuaLayer::token_scope() const {
  TokenScope scope = tokens_ == LuaTokens::separate ? TokenScope::separate : TokenScope::all;
  for (const auto& [name, layer] : layers_) {
    const TokenScope inner = layer->token_scope();
    if (inner == TokenScope::all || (inner == TokenScope::cached && scope == TokenScope::cached)) return TokenScope::all;
    if (inner == TokenScope::cached && scope == TokenScope::separate) scope = TokenScope::cached;
  }
  return scope;
}

std::optional<KvShape> LuaLayer::kv_shape(const Coord& coord) const {
  if (token_scope() != TokenScope::cached) return {};
  const auto inner =
      std::ranges::find_if(layers_, [](const auto& named) { return named.second->token_scope() == TokenScope::cached; });
  return inner->second->kv_shape(coord);
}

std::vector<std::string> LuaLayer::batch_axes() const {
  std::vector<std::string> all;
  for (const auto& [name, layer] : layers_) {
    for (const std::string& axis : extras_of(*std::as_const(layer)).batch_axes()) {
      if (std::ranges::find(all, axis) == all.end()) all.push_back(axis);
    }
  }
  return all;
}

std::vector<std::string> LuaLayer::gives_up() const {
  std::vector<std::string> all;
  for (const auto& [name, layer] : layers_) {
    for (const std::string& sentence : extras_of(*std::as_const(layer)).gives_up()) all.push_back(sentence);
  }
  return all;
}

std::string LuaLayer::assumption() const {
  std::vector<std::string> all;
  for (const auto& [name, layer] : layers_) {
    const std::string of_layer = extras_of(*std::as_const(layer)).assumption();
    if (!of_layer.empty() && std::ranges::find(all, of_layer) == all.end()) all.push_back(of_layer);
  }
  return fmt::format("{}", fmt::join(all, "; "));
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

// Fields of the batch follow the first input; in a layer without inputs, the first parameter.
at::Device LuaLayer::device_of(at::TensorList in, Context& context) const {
  for (const at::Tensor& input : in) {
    if (input.defined()) return input.device();
  }
  return params_.empty() ? at::kCPU : context.param(*params_[0].second).device();
}

at::Tensor LuaLayer::result(lua_State* L, int index, const Output& output) const {
  if (lua::is_tensor(L, index)) return lua::check_tensor(L, index);
  if (lua_isnil(L, index) && !output.differentiable) return {};
  misuse("the forward of a '{}' layer returned {} for its output '{}': return one tensor per output, {} in total", kind_,
         luaL_typename(L, index), output.name, io_.outputs.size());
}

std::vector<at::Tensor> LuaLayer::forward(at::TensorList in, Context& context) {
  const auto handle = std::make_shared<LuaContext>(LuaContext{&context, &named_axes_, device_of(in, context)});
  if (token_fields_) handle->token_fields = &*token_fields_;
  if (token_cut_) handle->token_axis = token_cut_->axis;
  lua_State* L = forward_->begin();
  has_garbage_ = true;
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

// The handles of tensors that a forward has made, and of its inputs, live until Lua collects them.
void LuaLayer::drop_garbage() {
  if (!std::exchange(has_garbage_, false)) return;
  lua_State* L = forward_->begin();
  lua_pop(L, 1);
  lua_gc(L, LUA_GCCOLLECT, 0);
}

void LuaLayer::check_batch(const BatchField& batch, Mode mode) const {
  for (const auto& [name, layer] : layers_) extras_of(*layer).check_batch(batch, mode);
}

// The tokens and samples that the losses of inner layers count.
Counts LuaLayer::inner_count(const BatchField& batch) const {
  Counts total;
  const auto take = [](int64_t& known, int64_t counted, const std::string& name, const char* what) {
    if (counted != 0 && known != 0 && counted != known) {
      misuse("the inner layer '{}' counts {} {}, and another one {}: let them count the same", name,
             std::max<int64_t>(counted, 0), what, std::max<int64_t>(known, 0));
    }
    if (known == 0) known = counted;
  };
  for (const auto& [name, layer] : layers_) {
    const Counts counts = layer->count(batch);
    take(total.tokens, counts.tokens, name, "valid tokens");
    take(total.samples, counts.samples, name, "samples");
  }
  return total;
}

Counts LuaLayer::count(const BatchField& batch) const {
  if (!count_) return inner_count(batch);
  lua_State* L = count_->begin();
  const auto handle = std::make_shared<LuaBatch>(LuaBatch{batch});
  const lua::StackScope scope(L, lua_gettop(L) - 1, [&] { handle->field = nullptr; });
  lua::push(L, handle);
  call(*count_, 1, 2);
  const auto number = [&](int index) { return lua_isnumber(L, index) ? lua::check_integer(L, index) : -1; };
  const int64_t tokens = number(-2);
  if (tokens < 0) misuse("the count of a '{}' layer must return the number of valid tokens in the batch, at least 0", kind_);
  if (lua_isnil(L, -1)) return {tokens, 0};
  const int64_t samples = number(-1);
  if (samples < 0) {
    misuse("the count of a '{}' layer must return as its second value the number of samples in the batch, at least 0, or nothing",
           kind_);
  }
  return {tokens, samples == 0 ? kNoSamples : samples};
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
          .optional("count", &LuaLayerOptions::count,
                    "function(batch) -> number of valid tokens, for a loss per token; [number of samples, for one per sample]")
          .optional(
              "tokens", &LuaLayerOptions::tokens,
              "the tokens that the outputs of one token depend on, besides what inner layers read: separate (this one) or all")
          .optional("kind", &LuaLayerOptions::kind, "name of the kind of layer, for reports")
          .optional("options", &LuaLayerOptions::options,
                    "plain values on which `forward` depends: zt.trainer compares them over the ranks")
          .optional("defined_at", &LuaLayerOptions::defined_at,
                    "\"file:line\" for messages; default: where `forward` is defined");
  return kSchema.make(value, [](const LuaLayerOptions& o) { return std::make_shared<LuaLayer>(o); });
}

}  // namespace zt::nn
