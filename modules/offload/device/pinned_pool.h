// Pinned memory for what is on its way between a device and files.
#pragma once

#include <ATen/core/Tensor.h>

#include <mutex>
#include <vector>

namespace zt::offload {

struct PinnedBytes {
  at::Tensor bytes;  // uint8, as many as were wanted
  at::Tensor whole;  // the memory in which they are
};

// Keeps what is given back: pinning takes time.
// Threads: any.
class PinnedPool {
 public:
  explicit PinnedPool(at::Device device) : device_(device) {}
  PinnedBytes take(int64_t bytes);
  // Call it when no transfer uses the memory any more.
  void give_back(const PinnedBytes& taken);

 private:
  const at::Device device_;
  std::mutex mutex_;
  std::vector<at::Tensor> free_;
};

}  // namespace zt::offload
