// Lazily committed memory.
#pragma once

#include <cstddef>
#include <cstdint>

namespace zt::ckpt {

// Memory that is zero at first and whose pages the system allocates at the first write. Growing may move it. The address is a
// multiple of 4096. Threads: several may write distinct bytes at once, but not during resize(). Throws a Fault if the system has
// no address space left.
class SparseMemory {
 public:
  explicit SparseMemory(int64_t capacity);
  ~SparseMemory();
  SparseMemory(const SparseMemory&) = delete;
  SparseMemory& operator=(const SparseMemory&) = delete;

  std::byte* data() const { return data_; }
  int64_t bytes() const { return bytes_; }
  // New bytes are zero, unless an earlier resize() made the memory smaller.
  void resize(int64_t bytes);

 private:
  std::byte* data_;
  int64_t bytes_ = 0, capacity_;
};

}  // namespace zt::ckpt
