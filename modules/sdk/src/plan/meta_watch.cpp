#include "meta_watch.h"

#include <c10/core/Allocator.h>

#include <algorithm>
#include <memory>
#include <mutex>

namespace zt {

namespace {

struct Counter {
  MetaWatch::Reading reading;
  void add(int64_t bytes) {
    reading.held += bytes;
    reading.peak = std::max(reading.peak, reading.held);
    reading.allocated += std::max<int64_t>(bytes, 0);
  }
};
thread_local std::shared_ptr<Counter> counter;

struct Holder {
  std::shared_ptr<Counter> counter;
  int64_t bytes;
};

// Allocates no memory, like LibTorch's own allocator for meta. While a watch is on, it counts each tensor's begin and end.
class CountingAllocator : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    const c10::Device meta(c10::DeviceType::Meta);
    if (!counter || bytes == 0) return {nullptr, nullptr, &release, meta};
    counter->add(static_cast<int64_t>(bytes));
    return {nullptr, new Holder{counter, static_cast<int64_t>(bytes)}, &release, meta};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &release; }
  void copy_data(void*, const void*, size_t) const override {}

 private:
  static void release(void* context) {
    const std::unique_ptr<Holder> holder(static_cast<Holder*>(context));
    if (holder) holder->counter->add(-holder->bytes);
  }
};

void install() {
  static CountingAllocator allocator;
  static std::once_flag once;
  constexpr uint8_t kPriority = 1;  // above LibTorch's own
  std::call_once(once, [] { c10::SetAllocator(c10::DeviceType::Meta, &allocator, kPriority); });
}

}  // namespace

MetaWatch::MetaWatch() {
  install();
  counter = std::make_shared<Counter>();
}
MetaWatch::~MetaWatch() {
  counter.reset();
}

MetaWatch::Reading MetaWatch::take() {
  const Reading reading = counter->reading;
  counter->reading = {.held = reading.held, .peak = reading.held, .allocated = 0};
  return reading;
}

}  // namespace zt
