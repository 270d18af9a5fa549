// A hash of text.
#pragma once

#include <cstdint>
#include <string_view>

namespace zt {

// Returns the 64-bit FNV-1a hash. It is equal in every run and on every machine, so keys can be made from names.
inline uint64_t stable_hash(std::string_view text) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return hash;
}

}  // namespace zt
