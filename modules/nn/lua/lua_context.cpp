#include "lua_context.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/tensor.h>

#include <algorithm>
#include <cmath>

#include "parts/dropout.h"
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

int batch(lua_State* L) {
  lua::push(L, self(L)->context->batch(lua::check_string(L, 2)));
  return 1;
}

int has_batch(lua_State* L) {
  lua::push(L, self(L)->context->has_batch(lua::check_string(L, 2)));
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

int dropout(lua_State* L) {
  const auto handle = self(L);
  const double probability = lua::check_number(L, 3);
  if (probability < 0 || probability >= 1) misuse("ctx:dropout: the probability must lie in [0, 1), got {}", probability);
  lua::push(L, Dropout(probability, handle->dropouts++).run(lua::check_tensor(L, 2), *handle->context));
  return 1;
}

// Returns the name of the axis of the function's first argument, along which the layer says that it communicates.
std::string check_axis(lua_State* L, const LuaContext& handle, const char* function) {
  const auto axis = lua::check<Axis>(L, 2);
  if (std::ranges::find(handle.axes, axis->name) == handle.axes.end())
    misuse("ctx:{}: the layer does not say that it communicates along '{}': give nn.layer axes = {{{}}}", function, axis->name,
           axis->names.size() > 1 ? "a single axis of the mesh" : "mesh." + axis->name);
  return axis->name;
}

// ctx:copy_to(axis, x) and ctx:reduce_from(axis, x)
template <at::Tensor (*run)(Context&, const std::string&, const at::Tensor&)>
int whole_op(lua_State* L) {
  const auto handle = self(L);
  lua::push(L,
            run(*handle->context, check_axis(L, *handle, run == copy_to ? "copy_to" : "reduce_from"), lua::check_tensor(L, 3)));
  return 1;
}

// ctx:scatter_to(axis, x, dim) and ctx:reduce_scatter_to(axis, x, dim)
template <at::Tensor (*run)(Context&, const std::string&, const at::Tensor&, int64_t)>
int share_op(lua_State* L) {
  const auto handle = self(L);
  const std::string axis = check_axis(L, *handle, run == scatter_to ? "scatter_to" : "reduce_scatter_to");
  lua::push(L, run(*handle->context, axis, lua::check_tensor(L, 3), lua::check_integer(L, 4)));
  return 1;
}

// ctx:gather_from(axis, x, dim, total, use)
int gather(lua_State* L) {
  const auto handle = self(L);
  const std::string axis = check_axis(L, *handle, "gather_from");
  const Use use = parse_word<Use>(lua::check_string(L, 6), "ctx:gather_from: unknown use of the result");
  lua::push(
      L, gather_from(*handle->context, axis, lua::check_tensor(L, 3), lua::check_integer(L, 4), lua::check_integer(L, 5), use));
  return 1;
}

// ctx:all_to_all(axis, x, joined_dim, cut_dim, total)
int exchange(lua_State* L) {
  const auto handle = self(L);
  const std::string axis = check_axis(L, *handle, "all_to_all");
  lua::push(L, all_to_all(*handle->context, axis, lua::check_tensor(L, 3), lua::check_integer(L, 4), lua::check_integer(L, 5),
                          lua::check_integer(L, 6)));
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
      .method<whole_op<copy_to>>("copy_to")
      .method<whole_op<reduce_from>>("reduce_from")
      .method<share_op<scatter_to>>("scatter_to")
      .method<share_op<reduce_scatter_to>>("reduce_scatter_to")
      .method<gather>("gather_from")
      .method<exchange>("all_to_all")
      .getter<mode>("mode")
      .getter<field<&Context::step>>("step")
      .getter<field<&Context::recompute>>("recompute")
      .getter<field<&Context::position>>("position")
      .getter<field<&Context::micro_batch>>("micro_batch");
}

}  // namespace zt::nn
