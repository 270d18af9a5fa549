// The functions of a Lua layer's context that communicate along axes.
#include <ATen/ATen.h>
#include <ATen/TensorIndexing.h>

#include <algorithm>

#include "lua_context.h"
#include "zt/base/rows.h"
#include "zt/base/tensor.h"
#include "zt/base/words.h"
#include "zt/comm/mesh.h"
#include "zt/model/axis_ops.h"

namespace zt::nn {

namespace {

GatherUse use_of(lua_State* L, int index, const char* function) {
  if (lua::is_absent(L, index))
    misuse("{}: `use` is missing: \"alike\" if all ranks compute the same from the result, else \"in_parts\"", function);
  return parse_word<GatherUse>(lua::check_string(L, index), std::string(function) + ": unknown use of the result");
}

// ctx:gather_tokens(x, use): all tokens of the samples, in their order
int gather_tokens(lua_State* L) {
  const auto handle = check_context(L);
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
  const auto handle = check_context(L);
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
  const auto handle = check_context(L);
  const auto axis = lua::check<Axis>(L, 2);
  const at::Tensor x = lua::check_tensor(L, 3);
  if (!handle->axes->contains(axis->name))
    misuse("ctx:{}: the layer does not say that it communicates along '{}' (it names {}): give nn.layer axes = {{{}}}", function,
           axis->name, handle->axes->empty() ? "none" : fmt::format("'{}'", fmt::join(*handle->axes, "', '")),
           axis->names.size() > 1 ? "a single axis of the mesh" : "mesh." + axis->name);
  lua::push(L, axis->size > 1 ? run(*handle->context, axis->name, x) : x);
  return 1;
}

// Throws Misuse if dim `dim`, of `total` elements in all, is that of the tokens of samples, and ranks do not have them in their
// order.
void check_order(const LuaContext& handle, const char* function, const at::Tensor& x, const std::string& axis, int64_t dim,
                 int64_t total) {
  const bool is_tokens = axis == handle.token_axis && (dim < 0 ? dim + x.dim() : dim) == 1;
  if (!is_tokens) return;
  const TokenPlaces& tokens = handle.context->tokens();
  const bool is_ordered = std::ranges::all_of(tokens.of_rank, [](const auto& ranges) { return ranges.size() == 1; });
  if (total == tokens.total && !is_ordered)
    misuse(
        "ctx:{} takes and gives shares in the order of the ranks, and '{}' cuts tokens in another: use ctx:gather_tokens(x, use) and "
        "ctx:own_tokens(x), or layout = \"contiguous\". If dim 1 is not the tokens, give it another place, as by x:unsqueeze(1)",
        function, axis);
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
    check_order(*check_context(L), "scatter_to", x, axis, dim, x.dim() > 1 ? x.size(1) : 0);
    return scatter_to(context, axis, x, dim);
  });
}

// ctx:reduce_scatter_to(axis, x, dim)
int reduce_scatter(lua_State* L) {
  const int64_t dim = lua::check_integer(L, 4);
  return along_axis(L, "reduce_scatter_to", [&](Context& context, const std::string& axis, const at::Tensor& x) {
    check_order(*check_context(L), "reduce_scatter_to", x, axis, dim, x.dim() > 1 ? x.size(1) : 0);
    return reduce_scatter_to(context, axis, x, dim);
  });
}

// ctx:gather_from(axis, x, dim, total, use)
int gather(lua_State* L) {
  const int64_t dim = lua::check_integer(L, 4), total = lua::check_integer(L, 5);
  const GatherUse use = use_of(L, 6, "ctx:gather_from");
  return along_axis(L, "gather_from", [&](Context& context, const std::string& axis, const at::Tensor& x) {
    check_order(*check_context(L), "gather_from", x, axis, dim, total);
    return gather_from(context, axis, x, dim, total, use);
  });
}

// ctx:all_to_all(axis, x, joined_dim, cut_dim, total)
int exchange(lua_State* L) {
  const int64_t joined_dim = lua::check_integer(L, 4), cut_dim = lua::check_integer(L, 5), total = lua::check_integer(L, 6);
  return along_axis(L, "all_to_all", [&](Context& context, const std::string& axis, const at::Tensor& x) {
    check_order(*check_context(L), "all_to_all", x, axis, joined_dim, total);
    check_order(*check_context(L), "all_to_all", x, axis, cut_dim, x.dim() > 1 ? x.size(1) : 0);
    return all_to_all(context, axis, x, joined_dim, cut_dim, total);
  });
}

}  // namespace

void add_axis_functions(lua::TypeBuilder<LuaContext>& type) {
  type.method<gather_tokens>("gather_tokens")
      .method<own_tokens>("own_tokens")
      .method<copy>("copy_to")
      .method<reduce>("reduce_from")
      .method<scatter>("scatter_to")
      .method<reduce_scatter>("reduce_scatter_to")
      .method<gather>("gather_from")
      .method<exchange>("all_to_all");
}

}  // namespace zt::nn
