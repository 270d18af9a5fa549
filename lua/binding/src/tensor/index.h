// x[i] and x[{...}].
//
//   x[2]                 row 2, counted from 0; -1 is the last
//   x[{0, {1, 5}}]       one entry per dim: a number selects, {first, end, step} is a range that excludes `end`
//   x[{{}, {3}}]         {} is the whole dim, {3} is from 3 to the end
//   x[{"...", 0}]        "..." stands for the dims that are not named
//   x[mask], x[{0, i}]   boolean masks and integer tensors select as in PyTorch
#pragma once

#include <lua.hpp>

namespace zt::lua {

// Stack: tensor, index. Pushes the selected elements: a view, or a copy if the index holds a tensor.
void push_indexed(lua_State* L);

// Stack: tensor, index, value. The value is a tensor (which broadcasts), a number, a boolean, or a table as zt.tensor takes.
void assign_indexed(lua_State* L);

}  // namespace zt::lua
