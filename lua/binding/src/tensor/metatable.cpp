// The metatable of tensors: x.name, x[i], x + y, #x, x == y, tostring(x).
#include <ATen/ops/equal.h>

#include <utility>

#include "arguments.h"
#include "box.h"
#include "ops/call.h"
#include "tensor/index.h"
#include "tensor/methods.h"
#include "tensor/print.h"
#include "zt/base/error.h"
#include "zt/lua/state.h"

namespace zt::lua {

namespace {

// Finds x.name if it is not in the table of methods (upvalue 1) yet, and adds it to the table.
int find_method(lua_State* L) {
  const std::string name = check_string(L, 2);
  if (!push_operator(L, name, CallStyle::method)) misuse("a tensor has no method '{}'{}", name, suggest(name, method_names()));
  lua_pushvalue(L, 2);
  lua_pushvalue(L, -2);
  lua_rawset(L, lua_upvalueindex(1));
  return 1;
}

int index_tensor(lua_State* L) {
  if (lua_type(L, 2) == LUA_TSTRING) {
    lua_pushvalue(L, 2);
    lua_rawget(L, lua_upvalueindex(1));
    return lua_isnil(L, -1) ? find_method(L) : 1;
  }
  push_indexed(L);
  return 1;
}

int assign(lua_State* L) {
  if (lua_type(L, 2) == LUA_TSTRING) misuse("tensors have no fields: '{}' cannot be set", lua_tostring(L, 2));
  assign_indexed(L);
  return 0;
}

// True for the same tensor, and for equal dtype, device, shape and values.
int is_equal(lua_State* L) {
  const at::Tensor a = check_tensor(L, 1), b = check_tensor(L, 2);
  const bool is_comparable = a.scalar_type() == b.scalar_type() && a.device() == b.device() && a.sizes() == b.sizes();
  push(L, a.is_same(b) || (is_comparable && at::equal(a, b)));
  return 1;
}

int length(lua_State* L) {
  const at::Tensor tensor = check_tensor(L, 1);
  if (tensor.dim() == 0) misuse("# of a 0-dim tensor: it has no dims, :item() gives its value");
  push(L, tensor.size(0));
  return 1;
}

int to_text(lua_State* L) {
  const TensorBox& box = *tensor_box(L, 1);
  push(L, box.state == TensorState::alive ? tensor_text(box.tensor) : describe_box(box));
  return 1;
}

int refuse_order(lua_State*) {
  misuse("tensors cannot be ordered by < and <=, which make one Lua boolean: use x:lt(y) or x:le(y)");
}

int negate(lua_State* L) {
  lua_settop(L, 1);  // Lua passes the operand twice
  push(L, check_tensor(L, 1).neg());
  return 1;
}

constexpr std::pair<const char*, const char*> kOperators[] = {{"__add", "add"}, {"__sub", "sub"}, {"__mul", "mul"},
                                                              {"__div", "div"}, {"__pow", "pow"}, {"__mod", "remainder"}};

}  // namespace

void fill_tensor_metatable(lua_State* L) {
  push_methods(L);
  lua_pushcclosure(L, guarded<index_tensor>, 1);
  lua_setfield(L, -2, "__index");
  for (const auto& [event, name] : kOperators) {
    push_operator(L, name, CallStyle::function);
    lua_setfield(L, -2, event);
  }
  detail::set_field_function(L, "__newindex", guarded<assign>);
  detail::set_field_function(L, "__eq", guarded<is_equal>);
  detail::set_field_function(L, "__lt", guarded<refuse_order>);
  detail::set_field_function(L, "__le", guarded<refuse_order>);
  detail::set_field_function(L, "__len", guarded<length>);
  detail::set_field_function(L, "__unm", guarded<negate>);
  detail::set_field_function(L, "__tostring", guarded<to_text>);
}

}  // namespace zt::lua
