#include "zt/base/box.h"

#include <fmt/ranges.h>

#include "zt/base/error.h"

namespace zt {

int64_t Box::numel() const {
  bool fits = true;
  int64_t n = 1;
  for (size_t d = 0; d < begin.size(); ++d) {
    if (end[d] == begin[d]) return 0;
    fits = fits && !__builtin_mul_overflow(n, end[d] - begin[d], &n);
  }
  if (!fits) misuse("a box from [{}] to [{}] has more elements than 64 bits count", fmt::join(begin, ", "), fmt::join(end, ", "));
  return n;
}

}  // namespace zt
