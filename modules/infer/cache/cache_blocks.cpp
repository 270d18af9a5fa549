#include "cache/cache_blocks.h"

namespace zt::infer {

// The blocks with the least numbers are taken first.
CacheBlocks::CacheBlocks(int32_t count) : holders_(static_cast<size_t>(count), 0) {
  free_.reserve(holders_.size());
  for (int32_t block = count - 1; block >= 0; --block) free_.push_back(block);
}

std::optional<int32_t> CacheBlocks::take() {
  if (free_.empty()) return std::nullopt;
  const int32_t block = free_.back();
  free_.pop_back();
  hold(block);
  return block;
}

void CacheBlocks::release(int32_t block) {
  if (--holders_[static_cast<size_t>(block)] == 0) free_.push_back(block);
}

}  // namespace zt::infer
