// A check of options: bytes of an operation of a swap file.
#pragma once

#include <fmt/format.h>

#include <string>

#include "zt/io/swap_file.h"

namespace zt::offload {

// Returns what is wrong with the number; empty if nothing is.
inline std::string multiple_of_pages(const int64_t& bytes) {
  if (bytes > 0 && bytes % io::kSwapAlignment == 0) return {};
  return fmt::format("must be a multiple of {} bytes, got {}", io::kSwapAlignment, bytes);
}

}  // namespace zt::offload
