// Counts the bytes of new tensors to run Lua's garbage collector in time, and lists the tensors that were made in scopes.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <lua.hpp>
#include <vector>

namespace zt::lua {

enum class TensorState : uint8_t { alive, released, left_scope, left_forward, left_step };

// The full userdata of a tensor.
struct TensorBox {
  at::Tensor tensor;
  int64_t scope_place = -1;  // index in TensorMemory's list; -1 outside of every scope
  TensorState state = TensorState::alive;
};

// Lua sees a tensor as 32 bytes, so its collector would leave gigabytes of garbage uncollected. This class counts the bytes of
// the tensors that are pushed, and runs a full collection after every `kBytesBetweenCollections`.
// Invariant: every live box that was made in an open scope is in `made_` at its scope_place.
class TensorMemory {
 public:
  static constexpr int64_t kBytesBetweenCollections = int64_t{64} << 20;

  // Call after a box was pushed. `bytes` is the memory that it newly allocated (0 for a view). This may run the collector, so
  // every value in use must be on the stack.
  void made(lua_State* L, TensorBox& box, int64_t bytes);
  // Call before a box is destroyed or its tensor is released.
  void forget(TensorBox& box);

  // Returns a mark: the scope is the part of the list from the mark on.
  size_t open_scope();
  // Frees every tensor made since `mark` except those in `kept`. Tensors in `kept` that were made in this scope move to the
  // surrounding scope.
  void close_scope(size_t mark, const std::vector<TensorBox*>& kept);

 private:
  void add_to_scope(TensorBox& box);

  int64_t bytes_since_collection_ = 0;
  size_t open_scopes_ = 0;
  std::vector<TensorBox*> made_;
};

// On destruction, frees the tensors that were made since construction, except `kept`. This also works if a function fails.
class TensorScope {
 public:
  explicit TensorScope(TensorMemory& memory) : memory_(memory), mark_(memory.open_scope()) {}
  ~TensorScope() { memory_.close_scope(mark_, kept); }
  TensorScope(const TensorScope&) = delete;

  std::vector<TensorBox*> kept;

 private:
  TensorMemory& memory_;
  size_t mark_;
};

}  // namespace zt::lua
