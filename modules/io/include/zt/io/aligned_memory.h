// Memory for direct I/O.
#pragma once

#include <cstddef>
#include <cstdint>

namespace zt::io {

// Owns zeroed memory that begins at a page boundary, as direct I/O requires. The constructor asks the system for huge pages.
// The system provides a page when it is first touched, so unused parts cost no memory.
// Threads: any; data() is const, and the caller synchronizes access to the bytes.
class AlignedMemory {
 public:
  // Throws: Fault when the system refuses `bytes` (at least 1) of memory.
  explicit AlignedMemory(int64_t bytes);
  ~AlignedMemory();
  AlignedMemory(const AlignedMemory&) = delete;
  AlignedMemory& operator=(const AlignedMemory&) = delete;

  std::byte* data() const { return data_; }

 private:
  std::byte* data_ = nullptr;
  int64_t bytes_ = 0;
};

}  // namespace zt::io
