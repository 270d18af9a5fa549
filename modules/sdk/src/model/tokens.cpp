#include "zt/model/tokens.h"

#include <ATen/ops/cat.h>

#include <algorithm>

#include "zt/base/error.h"

namespace zt {

std::string TokenCut::text() const {
  return fmt::format("axis = {}, layout = {}, fields = {}", axis, is_balanced ? "balanced" : "contiguous",
                     fmt::join(fields, ", "));
}

int64_t TokenPlaces::count(int of) const {
  int64_t tokens = 0;
  for (const Share& range : of_rank[static_cast<size_t>(of)]) tokens += range.count;
  return tokens;
}

TokenPlaces places_of(const TokenCut& cut, int64_t total, const Coord& coord) {
  const int ranks = coord.size(cut.axis), chunks = (cut.is_balanced && ranks > 1 ? 2 : 1) * ranks;
  if (total < chunks)
    misuse("samples of {} cannot be cut over the {} ranks of axis '{}': they need at least {}{}", counted(total, "token"), ranks,
           cut.axis, chunks, chunks > ranks ? fmt::format(", or {} with layout = \"contiguous\"", ranks) : "");
  TokenPlaces places{.total = total, .of_rank = {}, .rank = coord[cut.axis]};
  int64_t first = 0, last = total;
  for (int rank = 0; rank < ranks; ++rank) {
    std::vector<Share>& ranges = places.of_rank.emplace_back();
    const Share whole = share_of(total, ranks, rank);
    if (chunks == ranks) {
      add_range(ranges, whole);
      continue;
    }
    const int64_t late = whole.count / 2, early = whole.count - late;
    add_range(ranges, {first, early});
    add_range(ranges, {last - late, late});
    first += early;
    last -= late;
  }
  return places;
}

std::vector<Share> places_in(const std::vector<Share>& ranges, Share part) {
  std::vector<Share> places;
  int64_t before = 0;
  for (const Share& range : ranges) {
    const int64_t begin = std::max(part.begin, before), end = std::min(part.end(), before + range.count);
    if (begin < end) add_range(places, {range.begin + begin - before, end - begin});
    before += range.count;
  }
  return places;
}

TokenPlaces whole_places(int64_t total) {
  return {.total = total, .of_rank = {{{0, total}}}, .rank = 0};
}

at::Tensor tokens_in(const at::Tensor& field, const std::vector<Share>& ranges) {
  std::vector<at::Tensor> parts;
  for (const Share& range : ranges) parts.push_back(field.narrow(1, range.begin, range.count));
  return parts.size() == 1 ? parts.front().contiguous() : at::cat(parts, 1);
}

}  // namespace zt
