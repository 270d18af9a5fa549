#include "lua_context.h"

#include <ATen/ATen.h>
#include <ATen/TensorIndexing.h>

#include <algorithm>
#include <cmath>

#include "parts/dropout.h"
#include "zt/base/options.h"
#include "zt/base/rows.h"
#include "zt/base/tensor.h"
#include "zt/base/words.h"
#include "zt/comm/mesh.h"
#include "zt/model/axis_ops.h"

namespace zt {
ZT_DEFINE_OBJECT(nn::LuaContext, "LayerContext")
ZT_DEFINE_OBJECT(nn::LuaBatch, "Batch")
}  // namespace zt

namespace zt::nn {

namespace {

// Returns the first batch field with a number per token. Undefined: the batch has none, or the layer does not have the option
// `context`.
at::Tensor token_field(const LuaContext& handle) {
  if (!handle.token_fields) return {};
  for (const std::string& name : *handle.token_fields) {
    if (!handle.context->has_batch(name)) continue;
    const at::Tensor field = handle.context->batch(name);
    if (field.dim() > 1) return field;
  }
  return {};
}

// A layer with the option `context` has positions also where tokens are not cut, as on one rank and in inference.
bool makes_positions(const LuaContext& handle, const std::string& field) {
  return field == "positions" && !handle.context->has_batch(field) && token_field(handle).defined();
}

at::Tensor positions_of_tokens(const LuaContext& handle) {
  const at::Tensor field = token_field(handle);
  const at::Device device = handle.device.is_meta() ? handle.device : at::kCPU;
  const at::Tensor places = at::arange(field.size(1), at::TensorOptions(at::kLong).device(device));
  return places.expand({field.size(0), places.numel()}).contiguous();
}

}  // namespace

// On one rank the executor knows the fields of the option `context` by their usual names only.
TokenPlaces places_of(const LuaContext& handle) {
  const TokenPlaces& places = handle.context->tokens();
  if (places.of_rank.size() > 1) return places;
  const at::Tensor field = token_field(handle);
  return field.defined() ? whole_places(field.size(1)) : places;
}

namespace {

int batch(lua_State* L) {
  const auto handle = check_context(L);
  const std::string name = lua::check_string(L, 2);
  const at::Tensor field = makes_positions(*handle, name) ? positions_of_tokens(*handle) : handle->context->batch(name);
  lua::push(L, handle->device.is_cpu() || handle->device.is_meta() ? field : field.to(handle->device, /*non_blocking=*/true));
  return 1;
}

int has_batch(lua_State* L) {
  const auto handle = check_context(L);
  const std::string name = lua::check_string(L, 2);
  lua::push(L, makes_positions(*handle, name) || handle->context->has_batch(name));
  return 1;
}

int loss(lua_State* L) {
  const std::string per = lua::is_absent(L, 4) ? "token" : lua::check_string(L, 4);
  if (per != "token" && per != "sample") misuse("ctx:loss: per must be 'token' or 'sample', got '{}'", per);
  const at::Tensor sum = lua::check_tensor(L, 3);
  if (sum.numel() != 1) misuse("ctx:loss takes a scalar, a sum over {}s; got {} elements: call :sum()", per, sum.numel());
  check_context(L)->context->loss(lua::check_string(L, 2), sum.reshape({}), per == "token" ? Per::token : Per::sample);
  return 0;
}

double check_scalar(lua_State* L, int index, const char* what) {
  if (!lua::is_tensor(L, index)) return lua::check_number(L, index);
  const at::Tensor values = lua::check_tensor(L, index);
  if (values.numel() != 1)
    misuse("ctx:metric takes a number or a scalar as its {}; got {} elements: call :sum()", what, values.numel());
  return values.is_meta() ? 0 : values.item<double>();
}

// ctx:metric(name, sum, count)
int metric(lua_State* L) {
  const double sum = check_scalar(L, 3, "sum"), count = check_scalar(L, 4, "count");
  const std::string name = lua::check_string(L, 2);
  // A statistic that is not finite would end the step.
  if (std::isfinite(sum) && std::isfinite(count)) check_context(L)->context->stat(name, at::tensor({sum, count}, at::kDouble));
  return 0;
}

// The third argument of ctx:dropout.
struct DropoutDims {
  std::optional<bool> tokens;
  std::shared_ptr<Axis> axis;
  int64_t columns = 0, unit = 1;

  static const Schema<DropoutDims>& schema() {
    static const auto kSchema =
        Schema<DropoutDims>("ctx:dropout")
            .optional("tokens", &DropoutDims::tokens, "whether dim 1 is the tokens, where ranks have other tokens of a sample")
            .optional("axis", &DropoutDims::axis, "mesh axis over which the last dim is cut")
            .optional("columns", &DropoutDims::columns, "columns of the last dim on all ranks", at_least(1))
            .only_with("with axis", [](const DropoutDims& o) { return o.axis != nullptr; })
            .optional("unit", &DropoutDims::unit, "columns that stay together, as the `unit` of a cut group", at_least(1))
            .only_with("with axis", [](const DropoutDims& o) { return o.axis != nullptr; })
            .checked([](const DropoutDims& o) {
              if (o.axis && o.columns == 0) misuse("ctx:dropout: axis = mesh.{} needs columns, those of all ranks", o.axis->name);
              if (o.columns % o.unit != 0)
                misuse("ctx:dropout: columns = {} does not divide into units of {}", o.columns, o.unit);
            });
    return kSchema;
  }
};

int dropout(lua_State* L) {
  const auto handle = check_context(L);
  const double probability = lua::check_number(L, 3);
  if (probability < 0 || probability >= 1) misuse("ctx:dropout: the probability must lie in [0, 1), got {}", probability);
  const auto options = lua::is_absent(L, 4) ? DropoutDims{} : DropoutDims::schema().parse(lua::check_value(L, 4));
  const at::Tensor x = lua::check_tensor(L, 2);
  std::optional<OwnColumns> columns;
  if (const Axis* axis = options.axis.get()) {
    if (!handle->axes->contains(axis->name))
      misuse("ctx:dropout: the layer does not say that it communicates along '{}'", axis->name);
    if (x.dim() != 3) misuse("ctx:dropout: with `axis`, x is [samples, tokens, columns], got {}", describe(x));
    Context& context = *handle->context;
    const bool is_cut = axis->size > 1;  // a program without a mesh knows no other axes
    const int ranks = is_cut ? context.ranks_along(axis->name) : 1, rank = is_cut ? context.rank_along(axis->name) : 0;
    const Share units = share_of(options.columns / options.unit, ranks, rank);
    columns = {{units.begin * options.unit, units.count * options.unit}, options.columns};
    if (x.size(-1) != columns->own.count)
      misuse("ctx:dropout: of {} columns cut along '{}' this rank has {}, got {}", options.columns, axis->name,
             columns->own.count, describe(x));
  }
  const Dropout dropout(probability, handle->dropouts++, LayerRecompute::none, has_tokens_of(options.tokens));
  lua::push(L, dropout.run(x, *handle->context, {}, {}, columns));
  return 1;
}

// ctx.tokens: {total =, rank =, of_rank = {{{begin =, count =}, ...}, ...}}
int tokens(lua_State* L) {
  const TokenPlaces places = places_of(*check_context(L));
  Value::List ranks;
  for (const std::vector<Share>& ranges : places.of_rank) {
    Value::List list;
    for (const Share& range : ranges) list.emplace_back(Value::Table{{"begin", range.begin}, {"count", range.count}});
    ranks.emplace_back(std::move(list));
  }
  lua::push(L, Value(Value::Table{{"total", places.total}, {"rank", int64_t{places.rank}}, {"of_rank", std::move(ranks)}}));
  return 1;
}

int mode(lua_State* L) {
  lua::push(L, word_of(check_context(L)->context->mode));
  return 1;
}

// batch(name)
int batch_field(lua_State* L) {
  const auto batch = lua::check<LuaBatch>(L, 1);
  if (!batch->field) misuse("the batch given to a layer's `count` is valid during that call only: do not keep it");
  lua::push(L, batch->field(lua::check_string(L, 2)));
  return 1;
}

template <auto member>
int field(lua_State* L) {
  lua::push(L, check_context(L)->context->*member);
  return 1;
}

}  // namespace

std::shared_ptr<LuaContext> check_context(lua_State* L) {
  auto handle = lua::check<LuaContext>(L, 1);
  if (!handle->context) misuse("a layer's context is valid during its forward only: do not keep it");
  return handle;
}

void open_context_type(lua::Module& module) {
  module.type<LuaBatch>().metamethod<batch_field>("__call");
  auto type = module.type<LuaContext>();
  add_axis_functions(type);
  type.method<batch>("batch")
      .method<has_batch>("has_batch")
      .method<loss>("loss")
      .method<metric>("metric")
      .method<dropout>("dropout")
      .getter<mode>("mode")
      .getter<tokens>("tokens")
      .getter<field<&Context::step>>("step")
      .getter<field<&Context::recompute>>("recompute")
      .getter<field<&Context::position>>("position")
      .getter<field<&Context::micro_batch>>("micro_batch");
}

}  // namespace zt::nn
