// The stand-in for NCCL without a GPU, where a stream is the calling thread: it does all work at once. For tests of the stand-in.
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "device.h"
#include "fold.h"

namespace zt::test::one_gpu {

namespace {

class HostDevice : public Device {
 public:
  void* allocate(size_t bytes) override { return std::malloc(bytes); }
  void free(void* memory) override { std::free(memory); }
  void share(void*, size_t) override {}
  void unshare(void*) override {}
  void copy(void* to, const void* from, size_t bytes, cudaStream_t) override { std::memcpy(to, from, bytes); }
  void set(uint32_t* flag, uint32_t value, cudaStream_t) override { std::atomic_ref(*flag).store(value); }
  void await(uint32_t* flag, uint32_t value, cudaStream_t) override {
    while (std::atomic_ref(*flag).load() < value) std::this_thread::yield();
  }
  void reduce(const Sum& sum, cudaStream_t) override {
    with_type(sum.type, [&](auto value) {
      for (size_t i = 0; i < sum.count; ++i) fold<decltype(value)>(sum, i);
    });
  }
};

}  // namespace

Device& device() {
  static HostDevice made;
  return made;
}

}  // namespace zt::test::one_gpu
