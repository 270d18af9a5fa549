// Memory that costs what was touched of it.
#pragma once

#include <cstddef>
#include <cstdint>

namespace zt::ckpt {

// A mapping of zeros whose pages come when they are written. It grows and may move then. The address is a multiple of 4096.
// Threads: one, but for writes to distinct bytes while nobody resizes. Errors: Fault when the system gives no address space.
class SparseMemory {
 public:
  explicit SparseMemory(int64_t capacity);
  ~SparseMemory();
  SparseMemory(const SparseMemory&) = delete;
  SparseMemory& operator=(const SparseMemory&) = delete;

  std::byte* data() const { return data_; }
  int64_t bytes() const { return bytes_; }
  // New bytes are zero, unless the memory was larger before.
  void resize(int64_t bytes);

 private:
  std::byte* data_;
  int64_t bytes_ = 0, capacity_;
};

}  // namespace zt::ckpt
