#include "zt/base/box.h"

#include <fmt/ranges.h>

#include <algorithm>

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

void for_each_run(const Box& box, const std::vector<int64_t>& shape, int64_t begin, int64_t end,
                  const std::function<void(const BoxRun&)>& visit) {
  // The dims from `inner` on are contiguous in the tensor: all but the first of them are whole.
  size_t inner = shape.size();
  int64_t run = 1;
  while (inner > 0) {
    --inner;
    run *= box.end[inner] - box.begin[inner];
    if (box.end[inner] - box.begin[inner] != shape[inner]) break;
  }
  while (begin < end) {
    const int64_t count = std::min(end, (begin / run + 1) * run) - begin;
    int64_t rest = begin, place = 0, stride = 1;
    for (size_t d = shape.size(); d-- > 0; stride *= shape[d]) {
      const int64_t size = box.end[d] - box.begin[d];
      place += (box.begin[d] + rest % size) * stride;
      rest /= size;
    }
    visit({begin, place, count});
    begin += count;
  }
}

}  // namespace zt
