// Converts nested tables to tensors and back.
#pragma once

#include <ATen/core/Tensor.h>

#include <lua.hpp>
#include <optional>

namespace zt::lua {

// Returns the number, boolean or nested table at `index` as a CPU tensor. Without a dtype, booleans make bool, 64-bit cdata
// int64, and other numbers the state's default dtype. Throws Misuse, with the path of the entry, for ragged tables, other values,
// and fractions in an integer tensor.
at::Tensor tensor_from_table(lua_State* L, int index, std::optional<at::ScalarType> dtype);

// Pushes nested tables of numbers or booleans; for a 0-dim tensor, its value.
void push_as_table(lua_State* L, const at::Tensor& tensor);

}  // namespace zt::lua
