// Counts floating-point operations on tensors without memory (device meta).
#pragma once

#include <memory>

namespace zt {

// Counts the operations that this thread would do while the watch exists: GEMMs on meta tensors by zt::gemm and by ATen, and what
// other code reports to count_flops. One watch at a time per thread.
class FlopWatch {
 public:
  FlopWatch();
  ~FlopWatch();
  FlopWatch(const FlopWatch&) = delete;
  FlopWatch& operator=(const FlopWatch&) = delete;
  // Returns the operations since the last call, or since the begin.
  double take();

 private:
  struct Callback;
  std::unique_ptr<Callback> callback_;  // notices ATen's GEMMs
};

// Adds to this thread's watch, if there is one. For code that computes something by itself and does nothing on meta.
void count_flops(double flops);

}  // namespace zt
