#include "memory.h"

namespace zt::lua {

void TensorMemory::add_to_scope(TensorBox& box) {
  if (open_scopes_ == 0 || box.scope_place >= 0) return;
  box.scope_place = static_cast<int64_t>(made_.size());
  made_.push_back(&box);
}

void TensorMemory::made(lua_State* L, TensorBox& box, int64_t bytes) {
  add_to_scope(box);
  bytes_since_collection_ += bytes;
  if (bytes_since_collection_ < kBytesBetweenCollections) return;
  bytes_since_collection_ = 0;
  lua_gc(L, LUA_GCCOLLECT, 0);
}

void TensorMemory::forget(TensorBox& box) {
  if (box.scope_place >= 0) made_[static_cast<size_t>(box.scope_place)] = nullptr;
  box.scope_place = -1;
}

size_t TensorMemory::open_scope() {
  ++open_scopes_;
  return made_.size();
}

void TensorMemory::close_scope(size_t mark, const std::vector<TensorBox*>& kept) {
  --open_scopes_;
  std::vector<TensorBox*> adopted;
  for (TensorBox* box : kept) {
    if (box->scope_place < static_cast<int64_t>(mark)) continue;  // made outside of this scope
    forget(*box);
    adopted.push_back(box);
  }
  for (size_t i = mark; i < made_.size(); ++i) {
    TensorBox* box = made_[i];
    if (!box) continue;
    box->scope_place = -1;
    box->state = TensorState::left_scope;
    box->tensor.reset();
  }
  made_.resize(mark);
  for (TensorBox* box : adopted) add_to_scope(*box);
}

}  // namespace zt::lua
