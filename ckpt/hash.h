// Checksums of a checkpoint: xxh3 with 64 bits, seed 0.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

namespace zt::ckpt {

// Bytes of a dataset that one checksum covers; the last block of a dataset is shorter.
constexpr int64_t kChecksumBlock = int64_t{1} << 20;

uint64_t xxh3(std::span<const std::byte> bytes);

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
