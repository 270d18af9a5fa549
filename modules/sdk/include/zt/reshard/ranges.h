// Computes the bytes that a copy list reads. Pure functions.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "zt/reshard/reshard.h"

namespace zt {

// [begin, end) of a saved piece's bytes.
struct PieceBytes {
  int64_t begin, end;

  bool operator==(const PieceBytes&) const = default;
};

// Returns the runs that read saved region `source`.
std::span<const CopyRun> runs_of(const CopyList& copies, int32_t source);

// Returns the ranges of a saved piece of `piece_bytes` bytes to read for these runs: whole checksum blocks, ascending, joined if
// they touch. There are at most half as many ranges as blocks, rounded up.
std::vector<PieceBytes> block_ranges(std::span<const CopyRun> runs, int64_t element_bytes, int64_t piece_bytes,
                                     int64_t block_bytes);

// Calls f(from, to, count) for each contiguous stretch that a run copies from elements [begin, end) of its source, ascending. A
// loader calls it for each buffer that it has read.
template <class F>
void for_each_stretch(const CopyRun& run, int64_t begin, int64_t end, F f) {
  const bool starts_inside = run.times == 1 || begin < run.from + run.count;
  int64_t t = starts_inside ? 0 : (begin - run.from - run.count) / run.from_stride + 1;
  for (; t < run.times && run.from + t * run.from_stride < end; ++t) {
    const int64_t start = run.from + t * run.from_stride;
    const int64_t first = std::max(begin, start), last = std::min(end, start + run.count);
    if (first < last) f(first, run.to + t * run.to_stride + first - start, last - first);
  }
}

}  // namespace zt
