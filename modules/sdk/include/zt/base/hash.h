// A hash of text.
#pragma once

#include <cstdint>
#include <string_view>

namespace zt {

// Returns the 64-bit FNV-1a hash. It is equal in every run and on every machine, so keys can be made from names.
uint64_t stable_hash(std::string_view text);

}  // namespace zt
