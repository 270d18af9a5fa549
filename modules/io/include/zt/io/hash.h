// Checksums: xxh3 with 64 bits and seed 0, of whole data or per block of 1 MiB.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

namespace zt::io {

uint64_t xxh3(std::span<const std::byte> bytes);

// Bytes per block; each block has its own checksum. The last block may be shorter.
constexpr int64_t kChecksumBlock = int64_t{1} << 20;

// Returns the number of checksum blocks in `bytes` bytes of data.
constexpr int64_t checksum_blocks(int64_t bytes) {
  return bytes / kChecksumBlock + (bytes % kChecksumBlock > 0 ? 1 : 0);
}

// Splits `bytes`, which lie at offset `begin` of the data, into blocks. Calls each(i, block) for them; i is the block's index in
// the data.
// Requires that `begin` is a multiple of kChecksumBlock.
template <class Each>
void for_each_block(int64_t begin, std::span<const std::byte> bytes, const Each& each) {
  for (size_t at = 0; at < bytes.size(); at += kChecksumBlock)
    each(static_cast<size_t>(begin / kChecksumBlock) + at / kChecksumBlock,
         bytes.subspan(at, std::min<size_t>(kChecksumBlock, bytes.size() - at)));
}

// Computes xxh3 of data that arrive in parts. Threads: one at a time.
class Hash {
 public:
  Hash();
  ~Hash();
  Hash(const Hash&) = delete;
  Hash& operator=(const Hash&) = delete;
  void add(std::span<const std::byte> bytes);
  // Returns the checksum of all bytes added so far.
  uint64_t value() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace zt::io
