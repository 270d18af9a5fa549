// A hash of text.
#pragma once

#include <cstdint>
#include <string_view>

namespace zt {

// 64-bit FNV-1a: equal in every run and on every machine, so keys may be made from names.
uint64_t stable_hash(std::string_view text);

}  // namespace zt
