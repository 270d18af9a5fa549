// What the collector must know about tensors: how many bytes were made since it last ran, and which tensors a scope made.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <lua.hpp>
#include <vector>

namespace zt::lua {

enum class TensorState : uint8_t { alive, released, left_scope, left_forward };

// The full userdata of a tensor.
struct TensorBox {
  at::Tensor tensor;
  int64_t scope_place = -1;  // in TensorMemory's list; -1 outside of every scope
  TensorState state = TensorState::alive;
};

// Lua sees a tensor as 32 bytes, so its collector would let gigabytes of garbage stand. This counts what is pushed and runs a
// full collection whenever `kBytesBetweenCollections` have been made.
// Invariant: every box alive that was made inside the innermost open scope stands in `made_` at its scope_place.
class TensorMemory {
 public:
  static constexpr int64_t kBytesBetweenCollections = int64_t{64} << 20;

  // After a box was pushed: `bytes` is what it newly allocated (0 for a view). May collect: all in use must be on the stack.
  void made(lua_State* L, TensorBox& box, int64_t bytes);
  // Before a box is destroyed or its tensor taken away.
  void forget(TensorBox& box);

  // A scope is the part of the list from the returned mark on.
  size_t open_scope();
  // Frees every tensor made since `mark` except `kept`, which go to the surrounding scope if they were made in this one.
  void close_scope(size_t mark, const std::vector<TensorBox*>& kept);

 private:
  void add_to_scope(TensorBox& box);

  int64_t bytes_since_collection_ = 0;
  size_t open_scopes_ = 0;
  std::vector<TensorBox*> made_;
};

}  // namespace zt::lua
