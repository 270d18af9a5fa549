#include "meta_watch.h"

#include <c10/core/Allocator.h>

#include <algorithm>
#include <memory>
#include <mutex>

namespace zt {

namespace {

thread_local std::shared_ptr<MetaWatch::Reading> watched;  // of the watch that exists on this thread, if any

void count_bytes(MetaWatch::Reading& reading, int64_t bytes) {
  reading.held += bytes;
  reading.peak = std::max(reading.peak, reading.held);
  reading.allocated += std::max<int64_t>(bytes, 0);
}

struct Holder {
  std::shared_ptr<MetaWatch::Reading> reading;
  int64_t bytes;
};

// Allocates no memory, like LibTorch's own allocator for meta. While a watch is on, it counts each tensor's begin and end.
class CountingAllocator : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    const c10::Device meta(c10::DeviceType::Meta);
    if (!watched || bytes == 0) return {nullptr, nullptr, &release, meta};
    count_bytes(*watched, static_cast<int64_t>(bytes));
    return {nullptr, new Holder{watched, static_cast<int64_t>(bytes)}, &release, meta};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &release; }
  void copy_data(void*, const void*, size_t) const override {}

 private:
  static void release(void* context) {
    const std::unique_ptr<Holder> holder(static_cast<Holder*>(context));
    if (holder) count_bytes(*holder->reading, -holder->bytes);
  }
};

}  // namespace

MetaWatch::MetaWatch() {
  static CountingAllocator allocator;
  static std::once_flag once;
  constexpr uint8_t kPriority = 1;  // above LibTorch's own
  std::call_once(once, [] { c10::SetAllocator(c10::DeviceType::Meta, &allocator, kPriority); });
  watched = std::make_shared<Reading>();
}
MetaWatch::~MetaWatch() {
  watched.reset();
}

MetaWatch::Reading MetaWatch::take() {
  const Reading reading = *watched;
  *watched = {.held = reading.held, .peak = reading.held, .allocated = 0};
  return reading;
}

}  // namespace zt
