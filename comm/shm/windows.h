// Tensors in shared memory. A window is a memory of each rank, which all ranks of the team map. One memory may be in windows of
// several teams.
//
// Threads: call `place_of` and `address` only while no other thread adds a window. Tensors may be destroyed on any thread.
#pragma once

#include <map>
#include <memory>
#include <vector>

#include "shm/team.h"

namespace zt::comm {

class Windows {
 public:
  explicit Windows(Team& team) : team_(team) {}

  // Creates zeroed memory and makes it a window. Other teams can adopt it until it is hidden. Collective, with the same bytes on
  // every rank. Throws Declined, a Fault, on all ranks if one of them has no memory.
  std::shared_ptr<SharedMemory> create(size_t bytes);
  // Makes memory that this rank created and has not hidden a window. Collective. Throws Declined as `create`.
  void adopt(const std::shared_ptr<SharedMemory>& own);

  // Returns the place of `data` in the windows of this rank; window -1 if it lies in none of them.
  SharedPlace place_of(const void* data) const;
  // Returns where this process has mapped a place in a window of `rank`.
  char* address(int rank, const SharedPlace& place) const {
    const Window& window = windows_[static_cast<size_t>(place.window)];
    return (rank == team_.rank() ? *window.own : window.others[static_cast<size_t>(rank)]).data() + place.offset;
  }

 private:
  struct Window {
    std::shared_ptr<SharedMemory> own;
    std::vector<SharedMemory> others;  // by rank; this rank's place is empty
  };
  void add(const std::shared_ptr<SharedMemory>& own, std::vector<SharedMemory> others);

  Team& team_;
  std::vector<Window> windows_;  // they stay mapped: other ranks' tensors may live longer than this rank's
  std::map<const char*, std::pair<int32_t, size_t>> own_;  // start of this rank's memory -> window, bytes
};

}  // namespace zt::comm
