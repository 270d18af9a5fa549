// Counting what tensors on device meta would allocate.
#pragma once

#include <cstdint>

namespace zt {

// From its construction to its destruction: bytes of meta tensors that this thread makes, until they are gone.
class MetaWatch {
 public:
  MetaWatch();
  ~MetaWatch();
  MetaWatch(const MetaWatch&) = delete;
  MetaWatch& operator=(const MetaWatch&) = delete;
  int64_t peak_bytes() const;
};

}  // namespace zt
