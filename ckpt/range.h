// A part of a file.
#pragma once

#include <cstdint>

namespace zt::ckpt {

struct Range {
  int64_t offset = 0;
  int64_t bytes = 0;
};

}  // namespace zt::ckpt
