// The userdata of a tensor.
#pragma once

#include <ATen/core/Tensor.h>

#include <lua.hpp>
#include <string>

#include "memory.h"

namespace zt::lua {

// Returns null if the value is not a tensor. The box may be empty (released).
TensorBox* tensor_box(lua_State* L, int index);

// Returns the tensor of the box. Throws Misuse if it was released, or if its scope or its layer's forward has ended.
const at::Tensor& tensor_of(const TensorBox& box);

// Pushes a new userdata. `bytes` is the memory that the tensor newly allocated, 0 for a view.
void push_tensor(lua_State* L, at::Tensor tensor, int64_t bytes);

// Returns the bytes of the tensor's storage; 0 if it has none (sparse, meta).
int64_t storage_bytes(const at::Tensor& tensor);

// Returns whether `view`, which a script got for `own`, still has its memory, shape and dtype.
bool is_view_of(const at::Tensor& view, const at::Tensor& own);

// Returns "a tensor float32[2, 3] on cpu" or "a released tensor", for messages.
std::string describe_box(const TensorBox& box);

// Adds all fields but __gc to the metatable of tensors, which is on top of the stack. Called once per state.
void fill_tensor_metatable(lua_State* L);

}  // namespace zt::lua
