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

std::shared_ptr<LuaContext> self(lua_State* L) {
  auto handle = lua::check<LuaContext>(L, 1);
  if (!handle->context) misuse("a layer's context is valid during its forward only: do not keep it");
  return handle;
}

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

// Returns where this rank's tokens are. On one rank the executor knows the fields of the option `context` by their usual names
// only.
TokenPlaces places_of(const LuaContext& handle) {
  const TokenPlaces& places = handle.context->tokens();
  if (places.of_rank.size() > 1) return places;
  const at::Tensor field = token_field(handle);
  return field.defined() ? whole_places(field.size(1)) : places;
}

int batch(lua_State* L) {
  const auto handle = self(L);
  const std::string name = lua::check_string(L, 2);
  const at::Tensor field = makes_positions(*handle, name) ? positions_of_tokens(*handle) : handle->context->batch(name);
  lua::push(L, handle->device.is_cuda() ? field.to(handle->device, /*non_blocking=*/true) : field);
  return 1;
}

int has_batch(lua_State* L) {
  const auto handle = self(L);
  const std::string name = lua::check_string(L, 2);
  lua::push(L, makes_positions(*handle, name) || handle->context->has_batch(name));
  return 1;
}

int loss(lua_State* L) {
  const std::string per = lua::is_absent(L, 4) ? "token" : lua::check_string(L, 4);
  if (per != "token" && per != "sample") misuse("ctx:loss: per must be 'token' or 'sample', got '{}'", per);
  const at::Tensor sum = lua::check_tensor(L, 3);
  if (sum.numel() != 1) misuse("ctx:loss takes a scalar, a sum over {}s; got {} elements: call :sum()", per, sum.numel());
  self(L)->context->loss(lua::check_string(L, 2), sum.reshape({}), per == "token" ? Per::token : Per::sample);
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
  if (std::isfinite(sum) && std::isfinite(count)) self(L)->context->stat(name, at::tensor({sum, count}, at::kDouble));
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
  const auto handle = self(L);
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
  const auto has_tokens = !options.tokens ? HasTokens::unknown : *options.tokens ? HasTokens::yes : HasTokens::no;
  const Dropout dropout(probability, handle->dropouts++, LayerRecompute::none, has_tokens);
  lua::push(L, dropout.run(x, *handle->context, {}, {}, columns));
  return 1;
}

GatherUse use_of(lua_State* L, int index, const char* function) {
  if (lua::is_absent(L, index))
    misuse("{}: `use` is missing: \"alike\" if all ranks compute the same from the result, else \"in_parts\"", function);
  return parse_word<GatherUse>(lua::check_string(L, index), std::string(function) + ": unknown use of the result");
}

// ctx:gather_tokens(x, use): all tokens of the samples, in their order
int gather_tokens(lua_State* L) {
  const auto handle = self(L);
  const at::Tensor x = lua::check_tensor(L, 2);
  const GatherUse use = use_of(L, 3, "ctx:gather_tokens");
  const TokenPlaces& places = handle->context->tokens();
  if (places.of_rank.size() <= 1) {
    lua::push(L, x);
    return 1;
  }
  if (handle->token_axis.empty()) misuse("ctx:gather_tokens: the layer does not cut tokens: give nn.layer `context`");
  const at::Tensor by_rank = gather_from(*handle->context, handle->token_axis, x, 1, places.total, use);
  std::vector<at::Tensor> held;
  for (const auto& ranges : places.of_rank)
    for (const Share& range : ranges) held.push_back(at::arange(range.begin, range.end(), at::kLong));
  lua::push(L, by_rank.index({at::indexing::Slice(), at::cat(held).argsort().to(x.device())}));
  return 1;
}

// ctx:own_tokens(x): those of all tokens that this rank has
int own_tokens(lua_State* L) {
  const auto handle = self(L);
  const at::Tensor x = lua::check_tensor(L, 2);
  const TokenPlaces places = places_of(*handle);
  if (x.dim() < 2 || x.size(1) != places.total)
    misuse("ctx:own_tokens takes [samples, {}, ...], all tokens of the samples, got {}", places.total, describe(x));
  lua::push(L, places.of_rank.size() <= 1 ? x : tokens_in(x, places.own()));
  return 1;
}

// Pushes run(context, axis name, x), where the arguments 2 and 3 of the function are an axis and x; x itself, if the axis has one
// rank. The layer must have said that it communicates along the axis.
template <class Run>
int along_axis(lua_State* L, const char* function, const Run& run) {
  const auto handle = self(L);
  const auto axis = lua::check<Axis>(L, 2);
  const at::Tensor x = lua::check_tensor(L, 3);
  if (!handle->axes->contains(axis->name))
    misuse("ctx:{}: the layer does not say that it communicates along '{}' (it names {}): give nn.layer axes = {{{}}}", function,
           axis->name, handle->axes->empty() ? "none" : fmt::format("'{}'", fmt::join(*handle->axes, "', '")),
           axis->names.size() > 1 ? "a single axis of the mesh" : "mesh." + axis->name);
  lua::push(L, axis->size > 1 ? run(*handle->context, axis->name, x) : x);
  return 1;
}

// ctx:copy_to(axis, x)
int copy(lua_State* L) {
  return along_axis(L, "copy_to",
                    [](Context& context, const std::string& axis, const at::Tensor& x) { return copy_to(context, axis, x); });
}

// ctx:reduce_from(axis, x)
int reduce(lua_State* L) {
  return along_axis(L, "reduce_from",
                    [](Context& context, const std::string& axis, const at::Tensor& x) { return reduce_from(context, axis, x); });
}

// ctx:scatter_to(axis, x, dim)
int scatter(lua_State* L) {
  const int64_t dim = lua::check_integer(L, 4);
  return along_axis(L, "scatter_to", [&](Context& context, const std::string& axis, const at::Tensor& x) {
    return scatter_to(context, axis, x, dim);
  });
}

// ctx:reduce_scatter_to(axis, x, dim)
int reduce_scatter(lua_State* L) {
  const int64_t dim = lua::check_integer(L, 4);
  return along_axis(L, "reduce_scatter_to", [&](Context& context, const std::string& axis, const at::Tensor& x) {
    return reduce_scatter_to(context, axis, x, dim);
  });
}

// ctx:gather_from(axis, x, dim, total, use)
int gather(lua_State* L) {
  const int64_t dim = lua::check_integer(L, 4), total = lua::check_integer(L, 5);
  const GatherUse use = use_of(L, 6, "ctx:gather_from");
  return along_axis(L, "gather_from", [&](Context& context, const std::string& axis, const at::Tensor& x) {
    const TokenPlaces& tokens = context.tokens();
    const bool is_ordered = std::ranges::all_of(tokens.of_rank, [](const auto& ranges) { return ranges.size() == 1; });
    if (axis == self(L)->token_axis && dim == 1 && total == tokens.total && !is_ordered)
      misuse(
          "ctx:gather_from joins shares in the order of the ranks, and '{}' cuts tokens in another: use ctx:gather_tokens(x, use)",
          axis);
    return gather_from(context, axis, x, dim, total, use);
  });
}

// ctx:all_to_all(axis, x, joined_dim, cut_dim, total)
int exchange(lua_State* L) {
  const int64_t joined_dim = lua::check_integer(L, 4), cut_dim = lua::check_integer(L, 5), total = lua::check_integer(L, 6);
  return along_axis(L, "all_to_all", [&](Context& context, const std::string& axis, const at::Tensor& x) {
    return all_to_all(context, axis, x, joined_dim, cut_dim, total);
  });
}

// ctx.tokens: {total =, rank =, of_rank = {{{begin =, count =}, ...}, ...}}
int tokens(lua_State* L) {
  const TokenPlaces places = places_of(*self(L));
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
  lua::push(L, word_of(self(L)->context->mode));
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
  lua::push(L, self(L)->context->*member);
  return 1;
}

}  // namespace

void open_context_type(lua::Module& module) {
  module.type<LuaBatch>().metamethod<batch_field>("__call");
  module.type<LuaContext>()
      .method<batch>("batch")
      .method<has_batch>("has_batch")
      .method<loss>("loss")
      .method<metric>("metric")
      .method<dropout>("dropout")
      .method<gather_tokens>("gather_tokens")
      .method<own_tokens>("own_tokens")
      .method<copy>("copy_to")
      .method<reduce>("reduce_from")
      .method<scatter>("scatter_to")
      .method<reduce_scatter>("reduce_scatter_to")
      .method<gather>("gather_from")
      .method<exchange>("all_to_all")
      .getter<mode>("mode")
      .getter<tokens>("tokens")
      .getter<field<&Context::step>>("step")
      .getter<field<&Context::recompute>>("recompute")
      .getter<field<&Context::position>>("position")
      .getter<field<&Context::micro_batch>>("micro_batch");
}

}  // namespace zt::nn
