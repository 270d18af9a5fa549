#include "box.h"

#include "arguments.h"
#include "binding_state.h"
#include "zt/base/error.h"
#include "zt/base/tensor.h"
#include "zt/lua/state.h"

namespace zt::lua {

namespace {

const char kMetatableKey = 0;  // its address is the registry key

int finalize(lua_State* L) {
  auto* box = static_cast<TensorBox*>(lua_touserdata(L, 1));
  if (BindingState* state = find_binding_state(L)) state->memory.forget(*box);
  std::destroy_at(box);
  return 0;
}

void push_metatable(lua_State* L) {
  if (!push_registry_table(L, &kMetatableKey)) return;
  binding_state(L).tensor_metatable = lua_topointer(L, -1);
  lua_pushcfunction(L, finalize);
  lua_setfield(L, -2, "__gc");
  fill_tensor_metatable(L);
}

}  // namespace

TensorBox* tensor_box(lua_State* L, int index) {
  void* memory = lua_touserdata(L, index);
  if (!memory || !lua_getmetatable(L, index)) return nullptr;
  const void* metatable = lua_topointer(L, -1);
  lua_pop(L, 1);
  return metatable == binding_state(L).tensor_metatable ? static_cast<TensorBox*>(memory) : nullptr;
}

const at::Tensor& tensor_of(const TensorBox& box) {
  if (box.state == TensorState::released) misuse("the tensor was released by :release(): it cannot be used any more");
  if (box.state == TensorState::left_scope) {
    misuse(
        "the tensor was made inside a zt.scope that has ended: return it from the scope's function to keep it. The step of an "
        "optimizer is a scope, too: there declare a state");
  }
  if (box.state == TensorState::left_forward) {
    misuse(
        "the tensor is a parameter of a layer whose forward has ended, and its memory may hold another parameter now: read it "
        "from self in every forward");
  }
  if (box.state == TensorState::left_step) {
    misuse(
        "the tensor was given to the step of an optimizer, which has ended, and its memory may hold other values now: copy what is "
        "to be kept to a state of the optimizer");
  }
  return box.tensor;
}

std::string describe_box(const TensorBox& box) {
  return box.state == TensorState::alive ? "a tensor " + describe(box.tensor) : "a released tensor";
}

int64_t storage_bytes(const at::Tensor& tensor) {
  return tensor.has_storage() && !tensor.is_meta() ? static_cast<int64_t>(tensor.storage().nbytes()) : 0;
}

void push_tensor(lua_State* L, at::Tensor tensor, int64_t bytes) {
  push_metatable(L);
  auto* box = new (lua_newuserdata(L, sizeof(TensorBox))) TensorBox{std::move(tensor)};
  lua_insert(L, -2);
  lua_setmetatable(L, -2);
  binding_state(L).memory.made(L, *box, bytes);
}

bool is_tensor(lua_State* L, int index) {
  return tensor_box(L, index) != nullptr;
}

bool is_view_of(const at::Tensor& view, const at::Tensor& own) {
  return view.sizes() == own.sizes() && view.scalar_type() == own.scalar_type() && view.const_data_ptr() == own.const_data_ptr();
}

static void expire(lua_State* L, int index, TensorState state) {
  TensorBox* box = tensor_box(L, index);
  if (!box || box->state != TensorState::alive) return;
  binding_state(L).memory.forget(*box);
  box->tensor = at::Tensor();
  box->state = state;
}

void expire_parameter(lua_State* L, int index) {
  expire(L, index, TensorState::left_forward);
}

void expire_shard(lua_State* L, int index) {
  expire(L, index, TensorState::left_step);
}

at::Tensor check_tensor(lua_State* L, int index) {
  const TensorBox* box = tensor_box(L, index);
  if (!box) wrong_argument(L, index, "a tensor");
  return tensor_of(*box);
}

void push(lua_State* L, const at::Tensor& tensor) {
  if (!tensor.defined()) return lua_pushnil(L);
  // A storage with other owners is not new.
  const bool is_new = tensor.has_storage() && tensor.storage().use_count() == 1;
  push_tensor(L, tensor, is_new ? storage_bytes(tensor) : 0);
}

}  // namespace zt::lua
