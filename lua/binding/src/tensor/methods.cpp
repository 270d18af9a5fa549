#include "tensor/methods.h"

#include <utility>

#include "arguments.h"
#include "binding_state.h"
#include "box.h"
#include "ops/call.h"
#include "ops/convert.h"
#include "tensor/table.h"
#include "zt/base/error.h"
#include "zt/base/options.h"
#include "zt/base/tensor.h"
#include "zt/lua/state.h"

namespace zt::lua {

namespace {

// x:size() returns the list, x:size(dim) one entry. Dims count from 0, or backwards from -1.
int push_per_dim(lua_State* L, at::IntArrayRef values) {
  if (is_absent(L, 2)) return push_list(L, values), 1;
  const int64_t dim = check_integer(L, 2);
  const auto dims = static_cast<int64_t>(values.size());
  if (dim < -dims || dim >= dims) misuse("dim {} is out of range: the tensor has {} dims, counted from 0", dim, dims);
  push(L, values[static_cast<size_t>(dim < 0 ? dim + dims : dim)]);
  return 1;
}

int size(lua_State* L) {
  return push_per_dim(L, check_tensor(L, 1).sizes());
}
int stride(lua_State* L) {
  return push_per_dim(L, check_tensor(L, 1).strides());
}

int numel(lua_State* L) {
  return push(L, check_tensor(L, 1).numel()), 1;
}
int dim(lua_State* L) {
  return push(L, check_tensor(L, 1).dim()), 1;
}
int nbytes(lua_State* L) {
  return push(L, static_cast<int64_t>(check_tensor(L, 1).nbytes())), 1;
}
int element_size(lua_State* L) {
  return push(L, static_cast<int64_t>(check_tensor(L, 1).element_size())), 1;
}
int is_contiguous(lua_State* L) {
  return push(L, check_tensor(L, 1).is_contiguous()), 1;
}
int dtype(lua_State* L) {
  return push(L, dtype_name(check_tensor(L, 1).scalar_type())), 1;
}
int device(lua_State* L) {
  return push(L, check_tensor(L, 1).device().str()), 1;
}
int requires_grad(lua_State* L) {
  return push(L, check_tensor(L, 1).requires_grad()), 1;
}
int grad(lua_State* L) {
  return push(L, check_tensor(L, 1).grad()), 1;
}
int tolist(lua_State* L) {
  return push_as_table(L, check_tensor(L, 1)), 1;
}

int set_requires_grad(lua_State* L) {
  check_tensor(L, 1).set_requires_grad(is_absent(L, 2) || check_boolean(L, 2));
  lua_settop(L, 1);
  return 1;
}

int set_grad(lua_State* L) {
  at::Tensor tensor = check_tensor(L, 1);
  const at::Tensor given = is_absent(L, 2) ? at::Tensor() : check_tensor(L, 2);
  if (given.defined() && given.sizes() != tensor.sizes())
    misuse("the gradient is {}, but the tensor is {}: both must have the same shape", describe(given), describe(tensor));
  tensor.mutable_grad() = given;
  return 0;
}

struct BackwardOptions {
  bool retain_graph = false, create_graph = false;
};

const auto kBackward = Schema<BackwardOptions>("backward")
                           .optional("retain_graph", &BackwardOptions::retain_graph, "keep the graph for another backward")
                           .optional("create_graph", &BackwardOptions::create_graph, "record the backward as well");

// x:backward(gradient, {retain_graph = true, create_graph = true}). The gradient is optional.
int backward(lua_State* L) {
  const bool has_gradient = is_tensor(L, 2) || lua_isnil(L, 2);
  const at::Tensor gradient = is_tensor(L, 2) ? check_tensor(L, 2) : at::Tensor();
  const BackwardOptions options = kBackward.parse(check_value(L, has_gradient ? 3 : 2));
  check_tensor(L, 1).backward(gradient, options.retain_graph || options.create_graph, options.create_graph);
  return 0;
}

// x:release() drops this handle's reference to the tensor now. References of views, the autograd graph and C++ remain.
int release(lua_State* L) {
  TensorBox* box = tensor_box(L, 1);
  if (!box) wrong_argument(L, 1, "a tensor");
  if (box->state != TensorState::alive) return 0;
  binding_state(L).memory.forget(*box);
  box->tensor.reset();
  box->state = TensorState::released;
  return 0;
}

// x:to("cuda") or x:to("float32"). ATen's overloads with one positional argument take only a dtype, so a device goes by name.
int to(lua_State* L) {
  const bool is_device = lua_gettop(L) == 2 && lua_type(L, 2) == LUA_TSTRING &&
                         !is_word(ArgumentKind::dtype, lua_tostring(L, 2)) && is_word(ArgumentKind::device, lua_tostring(L, 2));
  if (is_device) {
    lua_createtable(L, 0, 1);
    lua_insert(L, 2);
    lua_setfield(L, 2, "device");
  }
  push_operator(L, "to", CallStyle::method);
  lua_insert(L, 1);
  lua_call(L, lua_gettop(L) - 1, 1);
  return 1;
}

constexpr std::pair<const char*, lua_CFunction> kMethods[] = {
    {"size", guarded<size>},
    {"sizes", guarded<size>},
    {"shape", guarded<size>},
    {"stride", guarded<stride>},
    {"strides", guarded<stride>},
    {"numel", guarded<numel>},
    {"dim", guarded<dim>},
    {"nbytes", guarded<nbytes>},
    {"element_size", guarded<element_size>},
    {"is_contiguous", guarded<is_contiguous>},
    {"dtype", guarded<dtype>},
    {"device", guarded<device>},
    {"requires_grad", guarded<requires_grad>},
    {"requires_grad_", guarded<set_requires_grad>},
    {"grad", guarded<grad>},
    {"set_grad", guarded<set_grad>},
    {"backward", guarded<backward>},
    {"tolist", guarded<tolist>},
    {"release", guarded<release>},
    {"to", guarded<to>},
};

}  // namespace

void push_methods(lua_State* L) {
  lua_newtable(L);
  for (const auto& [name, function] : kMethods) {
    lua_pushcfunction(L, function);
    note_method(L, name);
    lua_setfield(L, -2, name);
  }
}

const std::vector<std::string>& method_names() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> all;  // suggest takes the first of several that are equally near
    for (const auto& method : kMethods) all.emplace_back(method.first);
    const auto& operators = operator_names();
    all.insert(all.end(), operators.begin(), operators.end());
    return all;
  }();
  return names;
}

}  // namespace zt::lua
