// A fast hash of short byte strings, for tables in memory.
#pragma once

#include <cstdint>
#include <cstring>
#include <string_view>

namespace zt::data::huggingface {

// Returns the two halves of the 128-bit product of two numbers, combined.
inline uint64_t mix_bits(uint64_t a, uint64_t b) {
  const auto wide = static_cast<unsigned __int128>(a) * b;
  return static_cast<uint64_t>(wide) ^ static_cast<uint64_t>(wide >> 64);
}

inline uint64_t hash_bytes(std::string_view bytes) {
  constexpr uint64_t kFirst = 0x9E3779B97F4A7C15, kSecond = 0xD6E8FEB86659FD93;
  uint64_t hash = bytes.size() ^ kSecond;
  while (bytes.size() > 8) {
    uint64_t block = 0;
    std::memcpy(&block, bytes.data(), 8);
    hash = mix_bits(hash ^ block, kFirst);
    bytes.remove_prefix(8);
  }
  uint64_t rest = 0;
  std::memcpy(&rest, bytes.data(), bytes.size());
  return mix_bits(hash ^ rest, kFirst) ^ (hash << 1);
}

}  // namespace zt::data::huggingface
