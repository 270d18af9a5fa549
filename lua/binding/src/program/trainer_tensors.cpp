// Methods of a trainer that read and set single tensors.
#include "hooks.h"
#include "program/open.h"
#include "zt/base/tensor.h"
#include "zt/train/trainer.h"

namespace zt::lua {

namespace {

template <at::Tensor (TrainerTensors::*read)(const std::string&)>
int read_tensor(lua_State* L) {
  push(L, (check<Trainer>(L, 1)->tensors().*read)(check_string(L, 2)));
  return 1;
}

// trainer:optimizer_state(name) -> a table of tensors: {exp_avg = ..., exp_avg_sq = ...}
int optimizer_state(lua_State* L) {
  Value::Table state;
  for (const auto& [name, values] : check<Trainer>(L, 1)->tensors().optimizer_state(check_string(L, 2))) state[name] = values;
  push(L, Value(state));
  return 1;
}

// trainer:buffer(buffer, [owner]) -> what a buffer of a pass has for the parameter (sharded), the unit, position, layer or run
int pass_buffer(lua_State* L) {
  push(L, check<Trainer>(L, 1)->tensors().pass_buffer(check_string(L, 2), is_absent(L, 3) ? "" : check_string(L, 3)));
  return 1;
}

// Returns the rank whose values all ranks take; nullopt if no rank is given: then the values are the same on all ranks.
std::optional<int> check_source(lua_State* L, int index) {
  if (is_absent(L, index)) return {};
  return static_cast<int>(check_integer(L, index));
}

// trainer:set_parameter(name, values[, rank]): with a rank, all ranks take the values of that rank.
int set_parameter(lua_State* L) {
  check<Trainer>(L, 1)->tensors().set_parameter(check_string(L, 2), check_tensor(L, 3), check_source(L, 4));
  return 0;
}

int set_optimizer_state(lua_State* L) {
  check<Trainer>(L, 1)->tensors().set_optimizer_state(check_string(L, 2), check_string(L, 3), check_tensor(L, 4),
                                                      check_source(L, 5));
  return 0;
}

int push_parameters(lua_State* L) {
  Value::List names;
  for (const ModelTensor& tensor : check<Trainer>(L, 1)->tensors().all()) {
    if (tensor.is_parameter) names.emplace_back(tensor.name);
  }
  push(L, Value(names));
  return 1;
}

Value::Table description_of(const ModelTensor& tensor) {
  return {{"name", tensor.name},
          {"shape", Value::List(tensor.shape.begin(), tensor.shape.end())},
          {"dtype", dtype_name(tensor.dtype)},
          {"is_parameter", tensor.is_parameter}};
}

// tensors() -> {{name =, shape =, dtype =, is_parameter =}, ...}: all tensors of the model's state
int push_tensors(lua_State* L) {
  Value::List list;
  for (const ModelTensor& tensor : check<Trainer>(L, 1)->tensors().all()) list.emplace_back(description_of(tensor));
  push(L, Value(std::move(list)));
  return 1;
}

// describe_parameter(name) -> the entry of tensors() with that name
int describe_parameter(lua_State* L) {
  push(L, Value(description_of(check<Trainer>(L, 1)->tensors().at(check_string(L, 2)))));
  return 1;
}

// trainer:state(): returns an object with the whole tensors by name, which are gathered when they are read. The Lua library makes
// it (zt/state.lua).
int whole_state(lua_State* L) {
  const auto trainer = check<Trainer>(L, 1);
  push_hook(L, Hook::trainer_state, "trainer:state()");
  push(L, trainer);
  lua_call(L, 1, 1);
  return 1;
}

}  // namespace

void open_trainer_tensors(Module& module) {
  module.type<Trainer>()
      .method<whole_state>("state")
      .method<read_tensor<&TrainerTensors::parameter>>("parameter")
      .method<push_parameters>("parameters")
      .method<push_tensors>("tensors")
      .method<describe_parameter>("describe_parameter")
      .method<read_tensor<&TrainerTensors::gradient>>("gradient")
      .method<read_tensor<&TrainerTensors::master>>("master")
      .method<optimizer_state>("optimizer_state")
      .method<pass_buffer>("buffer")
      .method<set_parameter>("set_parameter")
      .method<set_optimizer_state>("set_optimizer_state");
}

}  // namespace zt::lua
