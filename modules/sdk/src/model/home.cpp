#include "zt/model/home.h"

#include <algorithm>

#include "zt/base/error.h"

namespace zt {

static int64_t divided_up(int64_t elements, int64_t parts) {
  return (elements + parts - 1) / parts;
}

Slice slice_of(int64_t elements, int64_t part, int64_t parts) {
  const int64_t size = in_whole_blocks(divided_up(elements, parts));
  const int64_t first = std::min(elements, part * size);
  return {first, std::min(elements, first + size) - first};
}

int64_t slices_of_at_most(int64_t elements, int64_t longest) {
  if (longest < 1 || longest % kSliceAlign != 0)
    misuse("slices of {} elements: give a positive multiple of {}", longest, kSliceAlign);
  return std::max<int64_t>(1, divided_up(elements, longest));
}

}  // namespace zt
