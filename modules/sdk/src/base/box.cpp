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

Share share_of(int64_t total, int parts, int index) {
  const auto begin_of = [&](int64_t i) { return (i * total + parts - 1) / parts; };
  return {begin_of(index), begin_of(index + 1) - begin_of(index)};
}

void add_range(std::vector<Share>& ranges, Share range) {
  if (range.count == 0) return;
  if (!ranges.empty() && ranges.back().end() == range.begin) ranges.back().count += range.count;
  else ranges.push_back(range);
}

namespace {

// Visits elements [begin, end) of one box, whose first element has the number `first` in the boxes.
void visit_box(const Box& box, const std::vector<int64_t>& shape, int64_t first, int64_t begin, int64_t end,
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
    visit({first + begin, place, count});
    begin += count;
  }
}

}  // namespace

void for_each_run(std::span<const Box> boxes, const std::vector<int64_t>& shape, int64_t begin, int64_t end,
                  const std::function<void(const BoxRun&)>& visit) {
  int64_t first = 0;
  for (const Box& box : boxes) {
    const int64_t numel = box.numel();
    visit_box(box, shape, first, std::max<int64_t>(begin - first, 0), std::min(end - first, numel), visit);
    first += numel;
  }
}

}  // namespace zt
