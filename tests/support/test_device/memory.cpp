#include "memory.h"

#include <cstdlib>
#include <cstring>
#include <map>
#include <new>
#include <set>

#include "test_device.h"

namespace zt::test {

namespace {

struct Block {
  size_t bytes = 0;
  std::set<Worker*> users = {};  // streams that may still use it when it is freed
};

// Blocks by their first byte.
class Blocks {
 public:
  void add(void* memory, size_t bytes) {
    const std::lock_guard lock(mutex_);
    blocks_[static_cast<std::byte*>(memory)] = {bytes};
    total_ += static_cast<int64_t>(bytes);
  }
  Block take(void* memory) {
    const std::lock_guard lock(mutex_);
    auto block = blocks_.extract(static_cast<std::byte*>(memory));
    if (block.empty()) return {};
    total_ -= static_cast<int64_t>(block.mapped().bytes);
    return std::move(block.mapped());
  }
  bool has(const void* memory) const {
    const std::lock_guard lock(mutex_);
    return find(memory) != blocks_.end();
  }
  void note_user(const void* memory, Worker& worker) {
    const std::lock_guard lock(mutex_);
    if (const auto found = find(memory); found != blocks_.end()) const_cast<Block&>(found->second).users.insert(&worker);
  }
  int64_t total() const {
    const std::lock_guard lock(mutex_);
    return total_;
  }

 private:
  using Map = std::map<std::byte*, Block>;

  Map::const_iterator find(const void* memory) const {
    auto* byte = static_cast<std::byte*>(const_cast<void*>(memory));
    auto after = blocks_.upper_bound(byte);
    if (after == blocks_.begin()) return blocks_.end();
    const auto block = std::prev(after);
    return byte < block->first + std::max<size_t>(block->second.bytes, 1) ? block : blocks_.end();
  }

  mutable std::mutex mutex_;
  Map blocks_;
  int64_t total_ = 0;
};

Blocks& on_device() {
  static auto& blocks = *new Blocks;
  return blocks;
}
Blocks& pinned() {
  static auto& blocks = *new Blocks;
  return blocks;
}

// Memory that is read after it was freed has other numbers: each byte is ones, so floats are NaN.
void give_back(void* memory, Block block) {
  auto last = std::shared_ptr<void>(memory, [bytes = block.bytes](void* freed) {
    std::memset(freed, 0xFF, bytes);
    std::free(freed);
  });
  for (Worker* user : block.users) user->post([last] {});
}

// As LibTorch's own allocators do, for those who watch the memory that a thread takes.
void report(void* memory, int64_t bytes) {
  c10::reportMemoryUsageToProfiler(memory, bytes, 0, 0, c10::Device(kTestDevice, 0));
}

void free_on_device(void* memory) {
  Block block = on_device().take(memory);
  report(memory, -static_cast<int64_t>(block.bytes));
  give_back(memory, std::move(block));
}
void free_pinned(void* memory) {
  give_back(memory, pinned().take(memory));
}

void* allocate_in(Blocks& blocks, size_t bytes) {
  constexpr size_t kAlign = 4096;
  void* memory = std::aligned_alloc(kAlign, std::max<size_t>((bytes + kAlign - 1) / kAlign, 1) * kAlign);
  if (!memory) throw std::bad_alloc();
  std::memset(memory, 0xFF, bytes);
  blocks.add(memory, bytes);
  return memory;
}

class DeviceAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    void* memory = allocate_in(on_device(), bytes);
    report(memory, static_cast<int64_t>(bytes));
    return {memory, memory, free_on_device, c10::Device(kTestDevice, 0)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return free_on_device; }
  void copy_data(void* to, const void* from, size_t bytes) const override { std::memcpy(to, from, bytes); }
};

class PinnedAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    void* memory = allocate_in(pinned(), bytes);
    return {memory, memory, free_pinned, c10::Device(c10::DeviceType::CPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return free_pinned; }
  void copy_data(void* to, const void* from, size_t bytes) const override { std::memcpy(to, from, bytes); }
};

}  // namespace

c10::Allocator& device_allocator() {
  static auto& allocator = *new DeviceAllocator;
  return allocator;
}

c10::Allocator& pinned_allocator() {
  static auto& allocator = *new PinnedAllocator;
  return allocator;
}

bool pin(void* memory, size_t bytes) {
  pinned().add(memory, bytes);
  return true;
}

void unpin(void* memory) {
  pinned().take(memory);
}

bool is_pinned(const void* memory) {
  return pinned().has(memory);
}

void keep_for(const void* memory, Worker& worker) {
  on_device().note_user(memory, worker);
  pinned().note_user(memory, worker);
}

int64_t device_bytes() {
  return on_device().total();
}

int64_t pinned_bytes() {
  return pinned().total();
}

}  // namespace zt::test
