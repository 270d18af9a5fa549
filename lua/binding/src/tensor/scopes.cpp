#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/autograd.h>

#include "arguments.h"
#include "binding_state.h"
#include "box.h"
#include "tensor/functions.h"
#include "zt/base/error.h"
#include "zt/base/options.h"

namespace zt::lua {

namespace {

// Collects the tensors in a function's results, also those in tables.
class TensorCollector {
 public:
  explicit TensorCollector(lua_State* L) : L_(L) {}

  void visit(int index) {
    if (TensorBox* box = tensor_box(L_, index)) return boxes_.push_back(box);
    if (!lua_istable(L_, index)) return;
    const void* table = lua_topointer(L_, index);
    if (std::find(seen_.begin(), seen_.end(), table) != seen_.end()) return;
    seen_.push_back(table);
    luaL_checkstack(L_, LUA_MINSTACK, "the results of zt.scope are nested too deeply");
    index = absolute(L_, index);
    lua_pushnil(L_);
    for (; lua_next(L_, index); lua_pop(L_, 1)) visit(-1);
  }

  const std::vector<TensorBox*>& boxes() const { return boxes_; }

 private:
  lua_State* L_;
  std::vector<const void*> seen_;
  std::vector<TensorBox*> boxes_;
};

// Calls argument 1 with the other arguments. Returns the number of its results, which are then on the stack.
int call_function(lua_State* L) {
  check_function(L, 1);
  lua_call(L, lua_gettop(L) - 1, LUA_MULTRET);
  return lua_gettop(L);
}

// zt.scope(fn, ...): calls fn(...), then frees every tensor that was made in it, except those in its results.
int scope(lua_State* L) {
  TensorScope open(binding_state(L).memory);
  const int results = call_function(L);
  TensorCollector collector(L);
  for (int i = 1; i <= results; ++i) collector.visit(i);
  open.kept = collector.boxes();
  return results;
}

// zt.no_grad(fn, ...): calls fn(...) without recording for autograd.
int no_grad(lua_State* L) {
  const at::NoGradGuard guard;
  return call_function(L);
}

std::vector<at::Tensor> check_tensors(lua_State* L, int index) {
  if (is_tensor(L, index)) return {check_tensor(L, index)};
  std::vector<at::Tensor> tensors;
  convert(check_value(L, index), argument_name(L, index), tensors);
  return tensors;
}

struct GradOptions {
  bool retain_graph = false, create_graph = false, allow_unused = false;
};

const auto kGrad = Schema<GradOptions>("zt.grad")
                       .optional("retain_graph", &GradOptions::retain_graph, "keep the graph for another backward")
                       .optional("create_graph", &GradOptions::create_graph, "record the backward as well")
                       .optional("allow_unused", &GradOptions::allow_unused, "nil instead of an error for an unused input");

// zt.grad(outputs, inputs, gradients, {retain_graph, create_graph, allow_unused}): returns a table with one gradient per input.
int gradients(lua_State* L) {
  const auto outputs = check_tensors(L, 1), inputs = check_tensors(L, 2);
  const auto seeds = is_absent(L, 3) ? std::vector<at::Tensor>() : check_tensors(L, 3);
  GradOptions options = kGrad.parse(check_value(L, 4));
  const auto found = torch::autograd::grad(outputs, inputs, seeds, options.retain_graph || options.create_graph,
                                           options.create_graph, options.allow_unused);
  push_list(L, found);
  return 1;
}

}  // namespace

void open_scopes(Module& module) {
  module.function<scope>("scope").function<no_grad>("no_grad").function<gradients>("grad");
}

}  // namespace zt::lua
