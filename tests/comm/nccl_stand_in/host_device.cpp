// The stand-in for NCCL without a GPU, on the streams of tests/support/test_device.
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "device.h"
#include "fold.h"
#include "support/test_device/workers.h"

namespace zt::test::stand_in {

namespace {

class HostDevice : public Device {
 public:
  void* allocate(size_t bytes) override { return std::malloc(bytes); }
  void free(void* memory) override { std::free(memory); }
  void share(void*, size_t) override {}
  void unshare(void*) override {}
  void copy(void* to, const void* from, size_t bytes, cudaStream_t stream) override {
    on(stream, [=] { std::memcpy(to, from, bytes); });
  }
  void set(uint32_t* flag, uint32_t value, cudaStream_t stream) override {
    on(stream, [=] { std::atomic_ref(*flag).store(value); });
  }
  void await(uint32_t* flag, uint32_t value, cudaStream_t stream) override {
    on(stream, [=] {
      while (std::atomic_ref(*flag).load() < value) std::this_thread::yield();
    });
  }
  void reduce(const Sum& sum, cudaStream_t stream) override {
    on(stream, [=] {
      with_type(sum.type, [&](auto value) {
        for (size_t i = 0; i < sum.count; ++i) fold<decltype(value)>(sum, i);
      });
    });
  }

 private:
  static void on(cudaStream_t stream, std::function<void()> task) { reinterpret_cast<Worker*>(stream)->add(std::move(task)); }
};

}  // namespace

Device& device() {
  static HostDevice made;
  return made;
}

}  // namespace zt::test::stand_in
