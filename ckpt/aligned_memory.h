// Memory that direct I/O takes: whole pages, large ones where the machine has them, touched only where it is used.
#pragma once

#include <cstddef>
#include <cstdint>

namespace zt::ckpt {

class AlignedMemory {
 public:
  // Zeroed. Fault when the machine does not give it.
  explicit AlignedMemory(int64_t bytes);
  ~AlignedMemory();
  AlignedMemory(const AlignedMemory&) = delete;
  AlignedMemory& operator=(const AlignedMemory&) = delete;

  std::byte* data() const { return data_; }

 private:
  std::byte* data_ = nullptr;
  int64_t bytes_ = 0;
};

}  // namespace zt::ckpt
