#include "device/pinned_pool.h"

#include <algorithm>
#include <bit>

#include "zt/execute/homes.h"

namespace zt::offload {

namespace {

// Rounds up, so that memory fits for more than one size: to powers of two, and above 64 MiB to multiples of 16 MiB.
int64_t size_for(int64_t bytes) {
  constexpr int64_t kLeast = int64_t{64} << 10, kLarge = int64_t{64} << 20, kStep = int64_t{16} << 20;
  if (bytes > kLarge) return (bytes + kStep - 1) / kStep * kStep;
  return static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(std::max(bytes, kLeast))));
}

}  // namespace

PinnedBytes PinnedPool::take(int64_t bytes) {
  const int64_t size = size_for(bytes);
  at::Tensor whole;
  {
    const std::lock_guard lock(mutex_);
    if (const auto found = std::ranges::find(free_, size, &at::Tensor::numel); found != free_.end()) {
      whole = std::move(*found);
      free_.erase(found);
    }
  }
  if (!whole.defined()) whole = pinned_bytes(size, device_);
  return {whole.narrow(0, 0, bytes), whole};
}

void PinnedPool::give_back(const PinnedBytes& taken) {
  const std::lock_guard lock(mutex_);
  free_.push_back(taken.whole);
}

}  // namespace zt::offload
