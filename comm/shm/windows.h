// Tensors in shared memory: one window a call of `allocate` and rank, mapped by all ranks of the team.
//
// Threads: `place_of` and `address` while no other thread allocates; tensors may die on any thread.
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <memory>
#include <vector>

#include "shm/team.h"

namespace zt::comm {

class Windows {
 public:
  explicit Windows(Team& team) : team_(team) {}

  // A zeroed tensor in a new window. Collective, with the same bytes on every rank. Fault on all ranks if one has no memory.
  at::Tensor allocate(at::IntArrayRef shape, at::ScalarType dtype);

  // Where `data` is, if it lies in a window of this rank.
  SharedPlace place_of(const void* data) const;
  // Where this rank finds a place of `rank`.
  char* address(int rank, const SharedPlace& place) const {
    return windows_[static_cast<size_t>(place.window)][rank] + place.offset;
  }

 private:
  Team& team_;
  std::vector<std::vector<char*>> windows_;                         // by window, by rank
  std::vector<std::shared_ptr<std::vector<SharedMemory>>> mapped_;  // by window: kept also by its tensor
  std::map<const char*, std::pair<int32_t, size_t>> own_;           // begin -> window, bytes
};

}  // namespace zt::comm
