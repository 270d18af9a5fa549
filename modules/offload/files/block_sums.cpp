#include "files/block_sums.h"

#include <array>

#include "zt/io/hash.h"

namespace zt::offload {

static uint64_t sum_of_zeros() {
  static constexpr std::array<std::byte, kSumBlock> kZeros{};
  return io::xxh3(kZeros);
}

BlockSums::BlockSums(int64_t bytes) : sums_(static_cast<size_t>(bytes / kSumBlock), sum_of_zeros()) {}

void BlockSums::note(int64_t place, std::span<const std::byte> written) {
  for (size_t at = 0; at < written.size(); at += kSumBlock)
    sums_[(static_cast<size_t>(place) + at) / kSumBlock] = io::xxh3(written.subspan(at, kSumBlock));
}

int64_t BlockSums::first_difference(int64_t place, std::span<const std::byte> read) const {
  for (size_t at = 0; at < read.size(); at += kSumBlock) {
    if (sums_[(static_cast<size_t>(place) + at) / kSumBlock] != io::xxh3(read.subspan(at, kSumBlock)))
      return place + static_cast<int64_t>(at);
  }
  return -1;
}

}  // namespace zt::offload
