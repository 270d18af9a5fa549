// Checksums of a checkpoint: xxh3 with 64 bits, seed 0.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

namespace zt::ckpt {

// Bytes of a dataset that one checksum covers; the last block of a dataset is shorter.
constexpr int64_t kChecksumBlock = int64_t{1} << 20;

uint64_t xxh3(std::span<const std::byte> bytes);

constexpr int64_t checksum_blocks(int64_t bytes) {
  return bytes / kChecksumBlock + (bytes % kChecksumBlock > 0 ? 1 : 0);
}

// Calls each(number, block) for the blocks of a dataset that `bytes` has; `begin`, a multiple of kChecksumBlock: where in the
// dataset they lie.
template <class Each>
void for_each_block(int64_t begin, std::span<const std::byte> bytes, const Each& each) {
  for (size_t at = 0; at < bytes.size(); at += kChecksumBlock)
    each(static_cast<size_t>(begin / kChecksumBlock) + at / kChecksumBlock,
         bytes.subspan(at, std::min<size_t>(kChecksumBlock, bytes.size() - at)));
}

// The xxh3 of bytes that come in parts.
class Hash {
 public:
  Hash();
  ~Hash();
  Hash(const Hash&) = delete;
  Hash& operator=(const Hash&) = delete;
  void add(std::span<const std::byte> bytes);
  uint64_t value() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace zt::ckpt
