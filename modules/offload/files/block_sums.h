// Checksums of what was written to a swap file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace zt::offload {

inline constexpr int64_t kSumBlock = 4096;  // bytes with a checksum of their own

// Places and sizes are multiples of kSumBlock. Threads: one at a time.
class BlockSums {
 public:
  // All of the `bytes` bytes are zero at first.
  explicit BlockSums(int64_t bytes);
  void note(int64_t place, std::span<const std::byte> written);
  // Returns the first byte of a block that differs from what was written; -1 if none does.
  int64_t first_difference(int64_t place, std::span<const std::byte> read) const;

 private:
  std::vector<uint64_t> sums_;
};

}  // namespace zt::offload
