#include "zt/reshard/ranges.h"

namespace zt {

std::span<const CopyRun> runs_of(const CopyList& copies, int32_t source) {
  return std::ranges::equal_range(copies.runs, source, {}, &CopyRun::source);
}

std::vector<PieceBytes> block_ranges(std::span<const CopyRun> runs, int64_t element_bytes, int64_t piece_bytes,
                                     int64_t block_bytes) {
  std::vector<PieceBytes> ranges;
  const auto add = [&](int64_t first, int64_t last) {  // elements; the last one is included
    const int64_t end = (last * element_bytes + element_bytes - 1) / block_bytes + 1;
    ranges.push_back({first * element_bytes / block_bytes * block_bytes, std::min(end * block_bytes, piece_bytes)});
  };
  for (const CopyRun& run : runs) {
    // A gap smaller than a block contains no whole block, so all blocks from the first stretch to the last are needed.
    const bool is_dense = (run.from_stride - run.count) * element_bytes < block_bytes;
    const int64_t joined = is_dense ? run.times : 1;
    for (int64_t t = 0; t < run.times; t += joined)
      add(run.from + t * run.from_stride, run.from + (t + joined - 1) * run.from_stride + run.count - 1);
  }
  std::ranges::sort(ranges, {}, &PieceBytes::begin);
  std::vector<PieceBytes> joined;
  for (const PieceBytes& range : ranges) {
    if (joined.empty() || range.begin > joined.back().end) joined.push_back(range);
    else joined.back().end = std::max(joined.back().end, range.end);
  }
  return joined;
}

}  // namespace zt
