#include "zt/io/aligned_memory.h"

#include <sys/mman.h>

#include <cerrno>
#include <cstring>

#include "zt/base/error.h"
#include "zt/base/tensor.h"

namespace zt::io {

AlignedMemory::AlignedMemory(int64_t bytes) : bytes_(bytes) {
  void* place = mmap(nullptr, static_cast<size_t>(bytes), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (place == MAP_FAILED) {
    fault("cannot get {} of memory to read or write a file ({}): free memory or raise the limit (ulimit -v)", human_bytes(bytes),
          std::strerror(errno));
  }
  madvise(place, static_cast<size_t>(bytes), MADV_HUGEPAGE);
  data_ = static_cast<std::byte*>(place);
}

AlignedMemory::~AlignedMemory() {
  munmap(data_, static_cast<size_t>(bytes_));
}

}  // namespace zt::io
