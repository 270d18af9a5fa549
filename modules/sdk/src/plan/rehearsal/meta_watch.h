// Counts the memory that tensors on device meta would need.
#pragma once

#include <cstdint>

namespace zt {

// Counts the bytes of the meta tensors that this thread makes while the watch exists. A tensor counts until it is destroyed.
class MetaWatch {
 public:
  MetaWatch();
  ~MetaWatch();
  MetaWatch(const MetaWatch&) = delete;
  MetaWatch& operator=(const MetaWatch&) = delete;

  struct Reading {
    int64_t held = 0;       // bytes that tensors hold now
    int64_t peak = 0;       // the most that they held since the last reading
    int64_t allocated = 0;  // the sum of what was made since then
  };
  Reading take();
};

}  // namespace zt
