#include "tensor/table.h"

#include <ATen/ops/empty.h>

#include "arguments.h"
#include "binding_state.h"
#include "cdata.h"
#include "zt/base/error.h"
#include "zt/base/tensor.h"
#include "zt/lua/state.h"

namespace zt::lua {

namespace {

// The sizes of the first table of each depth, and the dtype of the first innermost element.
struct Outline {
  std::vector<int64_t> sizes;
  at::ScalarType dtype;
};

Outline outline_of(lua_State* L, int index) {
  Outline outline{{}, binding_state(L).default_dtype};
  const int top = lua_gettop(L);
  lua_pushvalue(L, index);
  while (lua_istable(L, -1)) {
    luaL_checkstack(L, LUA_MINSTACK, "a table is nested too deeply for a tensor");
    if (outline.sizes.size() >= 64) misuse("the table for a tensor is nested more than 64 deep: does it contain itself?");
    outline.sizes.push_back(static_cast<int64_t>(lua_objlen(L, -1)));
    lua_rawgeti(L, -1, 1);
  }
  if (lua_isboolean(L, -1)) outline.dtype = at::kBool;
  if (int64_of_cdata(L, -1)) outline.dtype = at::kLong;
  lua_settop(L, top);
  return outline;
}

// Copies the leaves into a buffer of double or int64_t, checking that the table is rectangular.
template <class T>
class Filler {
 public:
  Filler(lua_State* L, const std::vector<int64_t>& sizes, at::ScalarType dtype, T* out)
      : L_(L), sizes_(sizes), dtype_(dtype), out_(out) {}

  // Copies the value on top of the stack.
  void fill(size_t depth) {
    if (depth == sizes_.size()) {
      *out_++ = leaf();
      return;
    }
    if (!lua_istable(L_, -1)) refuse(fmt::format("a table of {} entries expected, got {}", sizes_[depth], type_text(L_, -1)));
    const auto size = static_cast<int64_t>(lua_objlen(L_, -1));
    if (size != sizes_[depth]) refuse(fmt::format("it has {} entries, its neighbours have {}", size, sizes_[depth]));
    for (int64_t i = 1; i <= size; ++i) {
      path_.push_back(i);
      lua_rawgeti(L_, -1, static_cast<int>(i));
      fill(depth + 1);
      lua_pop(L_, 1);
      path_.pop_back();
    }
  }

 private:
  T leaf() {
    if (lua_isboolean(L_, -1)) return static_cast<T>(lua_toboolean(L_, -1));
    if constexpr (std::is_same_v<T, int64_t>) {
      if (const auto integer = integer_at(L_, -1)) return dtype_ == at::kBool ? *integer != 0 : *integer;
    } else {
      if (const auto integer = int64_of_cdata(L_, -1)) return static_cast<T>(*integer);
      if (lua_type(L_, -1) == LUA_TNUMBER) return lua_tonumber(L_, -1);
    }
    const bool is_fraction = lua_type(L_, -1) == LUA_TNUMBER;
    refuse(fmt::format("{} cannot be an element of a tensor of dtype {}",
                       is_fraction ? fmt::format("{}", lua_tonumber(L_, -1)) : type_text(L_, -1), dtype_name(dtype_)));
  }

  [[noreturn]] void refuse(const std::string& reason) const {
    misuse("the table for a tensor{}: {}", path_.empty() ? "" : fmt::format(", entry [{}]", fmt::join(path_, "][")), reason);
  }

  lua_State* L_;
  const std::vector<int64_t>& sizes_;
  at::ScalarType dtype_;
  T* out_;
  std::vector<int64_t> path_;
};

template <class T>
at::Tensor fill(lua_State* L, int index, const Outline& outline) {
  at::Tensor tensor = at::empty(outline.sizes, c10::CppTypeToScalarType<T>::value);
  lua_pushvalue(L, index);
  Filler<T>(L, outline.sizes, outline.dtype, tensor.data_ptr<T>()).fill(0);
  lua_pop(L, 1);
  return tensor.to(outline.dtype);
}

template <class T>
void push_elements(lua_State* L, const T* data, at::IntArrayRef sizes, at::IntArrayRef strides) {
  if (sizes.empty()) return push(L, *data);
  luaL_checkstack(L, LUA_MINSTACK, "a tensor with many dims as a table");
  lua_createtable(L, static_cast<int>(sizes[0]), 0);
  for (int64_t i = 0; i < sizes[0]; ++i) {
    push_elements(L, data + i * strides[0], sizes.slice(1), strides.slice(1));
    lua_rawseti(L, -2, static_cast<int>(i + 1));
  }
}

}  // namespace

at::Tensor tensor_from_table(lua_State* L, int index, std::optional<at::ScalarType> dtype) {
  index = absolute(L, index);
  Outline outline = outline_of(L, index);
  outline.dtype = dtype.value_or(outline.dtype);
  if (at::isIntegralType(outline.dtype, /*includeBool=*/true)) return fill<int64_t>(L, index, outline);
  return fill<double>(L, index, outline);
}

void push_as_table(lua_State* L, const at::Tensor& tensor) {
  const at::Tensor host = tensor.detach().cpu();
  if (at::isComplexType(host.scalar_type())) misuse("tolist of a complex tensor: take :view_as_real() first");
  if (host.scalar_type() == at::kBool) {
    push_elements(L, host.const_data_ptr<bool>(), host.sizes(), host.strides());
  } else if (at::isIntegralType(host.scalar_type(), /*includeBool=*/false)) {
    const at::Tensor wide = host.to(at::kLong);
    push_elements(L, wide.const_data_ptr<int64_t>(), wide.sizes(), wide.strides());
  } else {
    const at::Tensor wide = host.to(at::kDouble);
    push_elements(L, wide.const_data_ptr<double>(), wide.sizes(), wide.strides());
  }
}

}  // namespace zt::lua
