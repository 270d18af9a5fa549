// Tensors in shared memory. A call of `allocate` makes one window per rank, which all ranks of the team map.
//
// Threads: call `place_of` and `address` only while no other thread allocates. Tensors may be destroyed on any thread.
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

  // Returns a zeroed tensor in a new window. Collective, with the same bytes on every rank. Throws Declined, a Fault, on all
  // ranks if one of them has no memory.
  at::Tensor allocate(at::IntArrayRef shape, at::ScalarType dtype);

  // Returns the place of `data` in the windows of this rank; window -1 if it lies in none of them.
  SharedPlace place_of(const void* data) const;
  // Returns where this process has mapped a place in a window of `rank`.
  char* address(int rank, const SharedPlace& place) const {
    return windows_[static_cast<size_t>(place.window)][rank] + place.offset;
  }

 private:
  Team& team_;
  std::vector<std::vector<char*>> windows_;                         // by window, by rank
  std::vector<std::shared_ptr<std::vector<SharedMemory>>> mapped_;  // by window; its tensor holds it as well
  std::map<const char*, std::pair<int32_t, size_t>> own_;           // start of this rank's part -> window, bytes
};

}  // namespace zt::comm
