// Counts the memory of tensors.
#pragma once

#include <cstdint>
#include <memory>

namespace zt {

// Measures the peak of the bytes that tensors hold above those at the start, on all devices, as LibTorch's allocators report
// them. Threads: a Scope counts the allocations of the thread that made it. One watch serves one thread at a time.
class AllocationWatch {
 public:
  // Counts from its construction to its destruction, starting at zero.
  class Scope {
   public:
    explicit Scope(AllocationWatch& watch);
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
  };

  int64_t peak_bytes() const;  // of the last scope; -1 before the first

  AllocationWatch();
  ~AllocationWatch();

 private:
  class Counter;
  std::shared_ptr<Counter> counter_;
};

}  // namespace zt
