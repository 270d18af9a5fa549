// The userdata of a tensor.
#pragma once

#include <ATen/core/Tensor.h>

#include <lua.hpp>
#include <string>

#include "tensor/memory.h"

namespace zt::lua {

// nullptr: no tensor. The box may be empty (released).
TensorBox* tensor_box(lua_State* L, int index);

// The tensor of the box. Misuse when it was released or its scope has ended.
const at::Tensor& tensor_of(const TensorBox& box);

// Pushes a new userdata; `bytes` is what the tensor newly allocated, 0 for a view.
void push_tensor(lua_State* L, at::Tensor tensor, int64_t bytes);

// Bytes of the tensor's storage; 0 where it has none (sparse, meta).
int64_t storage_bytes(const at::Tensor& tensor);

// "a tensor float32[2, 3] on cpu", "a released tensor": for messages.
std::string describe_box(const TensorBox& box);

// Adds to the metatable of tensors, on top of the stack, all but __gc. Once a state.
void fill_tensor_metatable(lua_State* L);

}  // namespace zt::lua
