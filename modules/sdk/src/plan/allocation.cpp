#include "zt/plan/allocation.h"

#include <c10/core/Allocator.h>
#include <c10/util/ThreadLocalDebugInfo.h>

#include <algorithm>

namespace zt {

// LibTorch's allocators report to the thread's memory profiler, if it has one.
class AllocationWatch::Counter : public c10::MemoryReportingInfoBase {
 public:
  void begin() { held_ = peak_ = 0; }
  int64_t peak() const { return peak_; }

  void reportMemoryUsage(void*, int64_t bytes, size_t, size_t, c10::Device) override {
    held_ += bytes;
    peak_ = std::max(peak_, held_);
  }
  bool memoryProfilingEnabled() const override { return true; }

 private:
  int64_t held_ = 0;
  int64_t peak_ = -1;
};

struct AllocationWatch::Scope::Impl {
  c10::DebugInfoGuard guard;
};

AllocationWatch::Scope::Scope(AllocationWatch& watch) {
  watch.counter_->begin();
  impl_.reset(new Impl{c10::DebugInfoGuard(c10::DebugInfoKind::PROFILER_STATE, watch.counter_)});
}
AllocationWatch::Scope::~Scope() = default;

AllocationWatch::AllocationWatch() : counter_(std::make_shared<Counter>()) {}
AllocationWatch::~AllocationWatch() = default;

int64_t AllocationWatch::peak_bytes() const {
  return counter_->peak();
}

}  // namespace zt
