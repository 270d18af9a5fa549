#include "memory/large_blocks.h"

#include <c10/core/CPUAllocator.h>
#include <malloc.h>
#include <sys/mman.h>

#include <algorithm>
#include <mutex>
#include <unordered_map>

#include "memory/block_pool.h"

namespace zt::host {

namespace {

constexpr size_t kLeast = size_t{256} << 10;  // smaller blocks are malloc's
constexpr size_t kGrowth = size_t{64} << 20;  // bytes that are reserved at a time, at least
constexpr size_t kColours = 64, kLine = 64;

constexpr size_t in_pages(size_t bytes) {
  return (bytes + BlockPool::kPage - 1) / BlockPool::kPage * BlockPool::kPage;
}

void unmap(uintptr_t begin, size_t bytes) {
  munmap(reinterpret_cast<void*>(begin), bytes);
}

// Large tensors begin at different lines of their pages: if all began at the first one, the elements of several tensors with the
// same index would compete for the same lines of the cache.
class LargeBlocks {
 public:
  // Returns null if the system has no memory left.
  void* take(size_t bytes) {
    const std::lock_guard lock(mutex_);
    const size_t size = in_pages(bytes + (kColours - 1) * kLine);
    uintptr_t begin = pool_.take(size);
    if (begin == 0) {
      if (!grow(size)) return nullptr;
      begin = pool_.take(size);
    }
    colour_ = (colour_ + 1) % kColours;
    void* memory = reinterpret_cast<void*>(begin + colour_ * kLine);
    blocks_.emplace(memory, Block{begin, size});
    return memory;
  }
  bool has(void* memory) {
    const std::lock_guard lock(mutex_);
    return blocks_.contains(memory);
  }
  void give_back(void* memory) {
    const std::lock_guard lock(mutex_);
    const auto found = blocks_.find(memory);
    pool_.give_back(found->second.begin, found->second.bytes);
    blocks_.erase(found);
    if (is_short_) pool_.remove_free(unmap);
  }

 private:
  struct Block {
    uintptr_t begin;
    size_t bytes;
  };

  // Where the process may not reserve so many addresses (ulimit -v), those of free ranges go back to the system, from then on at
  // once: threads and libraries need some, too.
  bool grow(size_t bytes) {
    if (map(std::max(bytes, kGrowth))) return true;
    is_short_ = true;
    pool_.remove_free(unmap);
    return map(bytes);
  }
  // New memory should follow what there is, so that free ranges of both join.
  bool map(size_t bytes) {
    void* memory = mmap(end_, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) return false;
    pool_.add(reinterpret_cast<uintptr_t>(memory), bytes);
    end_ = static_cast<std::byte*>(memory) + bytes;
    return true;
  }

  std::mutex mutex_;
  BlockPool pool_{[](uintptr_t begin, size_t bytes) { madvise(reinterpret_cast<void*>(begin), bytes, MADV_DONTNEED); }};
  std::unordered_map<void*, Block> blocks_;
  size_t colour_ = 0;
  void* end_ = nullptr;
  bool is_short_ = false;
};

// Never destroyed: tensors may outlive main.
LargeBlocks& large_blocks() {
  static LargeBlocks& blocks = *new LargeBlocks;
  return blocks;
}

void release_large(void* memory) {
  c10::profiledCPUMemoryReporter().Delete(memory);
  large_blocks().give_back(memory);
}

class Allocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    if (bytes >= kLeast) {
      if (void* memory = large_blocks().take(bytes)) {
        c10::profiledCPUMemoryReporter().New(memory, bytes);
        return {memory, memory, release_large, c10::Device(c10::DeviceType::CPU)};
      }
    }
    return small_.allocate(bytes);  // it throws if there is no memory
  }
  c10::DeleterFnPtr raw_deleter() const override { return release_any; }
  void copy_data(void* to, const void* from, size_t bytes) const override { default_copy_data(to, from, bytes); }

 private:
  static void release_any(void* memory) {
    if (large_blocks().has(memory)) release_large(memory);
    else c10::GetDefaultCPUAllocator()->raw_deleter()(memory);
  }

  c10::Allocator& small_ = *c10::GetDefaultCPUAllocator();
};

}  // namespace

// By default malloc maps each large temporary from the kernel and unmaps it at once. A 64 MiB addition then spends six sevenths
// of its time in page faults (37 ms against 6 ms). If malloc keeps what is freed, its heap has pieces between blocks that live,
// and takes up to a third more memory than the tensors.
void keep_large_blocks() {
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // a sanitizer knows malloc's blocks
  c10::SetCPUAllocator(new Allocator, /*priority=*/100);
#endif
  // For libraries that take their memory from malloc. It only affects malloc's arena of the main thread: one arena for all
  // threads (M_ARENA_MAX = 1) would make every small allocation wait for one lock.
  mallopt(M_MMAP_THRESHOLD, 1 << 30);
  mallopt(M_TRIM_THRESHOLD, -1);
  mallopt(M_TOP_PAD, 64 << 20);
}

}  // namespace zt::host
