// Counts the memory of tensors.
#pragma once

#include <c10/core/Allocator.h>
#include <c10/util/ThreadLocalDebugInfo.h>

#include <algorithm>
#include <cstdint>
#include <memory>

namespace zt {

// Measures the peak of the bytes that tensors hold above those at the start, on all devices, as LibTorch's allocators report
// them. Threads: a Scope counts the allocations of the thread that made it. One watch serves one thread at a time.
class AllocationWatch {
  // LibTorch's allocators report to the thread's memory profiler, if it has one.
  struct Counter : c10::MemoryReportingInfoBase {
    int64_t held = 0, peak = -1;
    void reportMemoryUsage(void*, int64_t bytes, size_t, size_t, c10::Device) override {
      held += bytes;
      peak = std::max(peak, held);
    }
    bool memoryProfilingEnabled() const override { return true; }
  };
  std::shared_ptr<Counter> counter_ = std::make_shared<Counter>();

 public:
  // Counts from its construction to its destruction, starting at zero.
  class Scope {
   public:
    explicit Scope(AllocationWatch& watch) : guard_(c10::DebugInfoKind::PROFILER_STATE, watch.counter_) {
      watch.counter_->held = watch.counter_->peak = 0;
    }

   private:
    c10::DebugInfoGuard guard_;
  };

  int64_t peak_bytes() const { return counter_->peak; }  // of the last scope; -1 before the first
};

}  // namespace zt
