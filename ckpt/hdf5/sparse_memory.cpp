#include "sparse_memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "zt/base/error.h"

namespace zt::ckpt {

namespace {

int64_t whole_pages(int64_t bytes) {
  constexpr int64_t kGrain = 1 << 16;  // bytes: a multiple of any page size
  return (bytes + kGrain) / kGrain * kGrain;
}

std::byte* mapped(void* address, int64_t bytes) {
  if (address != MAP_FAILED) return static_cast<std::byte*>(address);
  fault("the system gives no {} bytes of address space for an image of a checkpoint file: {}. Raise the limit (ulimit -v)", bytes,
        std::strerror(errno));
}

}  // namespace

SparseMemory::SparseMemory(int64_t capacity) : capacity_(whole_pages(capacity)) {
  data_ = mapped(
      mmap(nullptr, static_cast<size_t>(capacity_), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0),
      capacity_);
}

SparseMemory::~SparseMemory() {
  munmap(data_, static_cast<size_t>(capacity_));
}

void SparseMemory::resize(int64_t bytes) {
  if (bytes > capacity_) {
    const int64_t wanted = whole_pages(std::max(bytes, capacity_ + capacity_ / 2));
    data_ = mapped(mremap(data_, static_cast<size_t>(capacity_), static_cast<size_t>(wanted), MREMAP_MAYMOVE), wanted);
    capacity_ = wanted;
  }
  bytes_ = bytes;
}

}  // namespace zt::ckpt
