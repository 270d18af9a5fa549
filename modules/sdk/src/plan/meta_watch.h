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
  int64_t peak_bytes() const;
};

}  // namespace zt
