#include "lua_context.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/tensor.h>

#include <cmath>

#include "parts/dropout.h"

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
      .getter<mode>("mode")
      .getter<field<&Context::step>>("step")
      .getter<field<&Context::recompute>>("recompute")
      .getter<field<&Context::position>>("position")
      .getter<field<&Context::micro_batch>>("micro_batch");
}

}  // namespace zt::nn
