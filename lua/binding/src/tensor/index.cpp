#include "tensor/index.h"

#include <ATen/TensorIndexing.h>

#include "arguments.h"
#include "box.h"
#include "cdata.h"
#include "tensor/table.h"
#include "zt/base/error.h"
#include "zt/lua/state.h"

namespace zt::lua {

namespace {

using at::indexing::Slice;
using at::indexing::TensorIndex;

// Returns entry `place` of the range on top of the stack; nullopt if the range is shorter.
std::optional<c10::SymInt> bound(lua_State* L, int place, int dim) {
  lua_rawgeti(L, -1, place);
  const auto integer = integer_at(L, -1);
  if (!integer && !lua_isnil(L, -1))
    misuse("index {}: a range holds integers {{first, end, step}}, this one {}", dim, type_text(L, -1));
  lua_pop(L, 1);
  return integer ? std::optional<c10::SymInt>(*integer) : std::nullopt;
}

Slice range(lua_State* L, int dim) {
  if (lua_objlen(L, -1) > 3) misuse("index {}: a range is {{first, end, step}}, this one has {} numbers", dim, lua_objlen(L, -1));
  return {bound(L, 1, dim), bound(L, 2, dim), bound(L, 3, dim)};
}

// Converts the index entry on top of the stack.
TensorIndex entry(lua_State* L, int dim) {
  if (const auto integer = integer_at(L, -1)) return *integer;
  if (is_tensor(L, -1)) return check_tensor(L, -1);
  if (lua_istable(L, -1)) return range(L, dim);
  if (lua_type(L, -1) == LUA_TSTRING && std::string_view(lua_tostring(L, -1)) == "...") return at::indexing::Ellipsis;
  misuse("index {}: an integer, a range {{first, end, step}}, a tensor or '...' expected, got {}", dim, type_text(L, -1));
}

std::vector<TensorIndex> entries(lua_State* L) {
  std::vector<TensorIndex> all;
  if (!lua_istable(L, 2)) {
    lua_pushvalue(L, 2);
    all.push_back(entry(L, 0));
    lua_pop(L, 1);
    return all;
  }
  const int count = static_cast<int>(lua_objlen(L, 2));
  for (int i = 1; i <= count; ++i) {
    lua_rawgeti(L, 2, i);
    all.push_back(entry(L, i - 1));
    lua_pop(L, 1);
  }
  if (all.empty()) all.emplace_back(at::indexing::Ellipsis);
  return all;
}

}  // namespace

void push_indexed(lua_State* L) {
  const at::Tensor tensor = check_tensor(L, 1);
  const at::Tensor selected = tensor.index(entries(L));
  const bool is_view = selected.has_storage() && tensor.has_storage() && selected.storage().is_alias_of(tensor.storage());
  push_tensor(L, selected, is_view ? 0 : storage_bytes(selected));
}

void assign_indexed(lua_State* L) {
  at::Tensor tensor = check_tensor(L, 1);
  const auto where = entries(L);
  if (lua_isboolean(L, 3)) {
    tensor.index_put_(where, at::Scalar(lua_toboolean(L, 3) != 0));
  } else if (const auto integer = integer_at(L, 3)) {
    tensor.index_put_(where, at::Scalar(*integer));
  } else if (lua_type(L, 3) == LUA_TNUMBER) {
    tensor.index_put_(where, at::Scalar(lua_tonumber(L, 3)));
  } else if (lua_istable(L, 3)) {
    tensor.index_put_(where, tensor_from_table(L, 3, tensor.scalar_type()).to(tensor.device()));
  } else {
    tensor.index_put_(where, check_tensor(L, 3));
  }
}

}  // namespace zt::lua
