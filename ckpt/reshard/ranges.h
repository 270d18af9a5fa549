// The bytes that a copy plan reads. Pure.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "reshard.h"
#include "zt/io/hash.h"

namespace zt::ckpt {

// [begin, end) of a saved piece's bytes.
struct PieceBytes {
  int64_t begin, end;

  bool operator==(const PieceBytes&) const = default;
};

// The runs of a plan that read saved region `source`.
std::span<const Run> runs_of(const CopyPlan& plan, int32_t source);

// What of a saved piece of `piece_bytes` bytes must be read for these runs: whole checksum blocks, ascending, joined where they
// touch. There are at most half as many ranges as the piece has blocks, whatever the runs.
std::vector<PieceBytes> block_ranges(std::span<const Run> runs, int64_t element_bytes, int64_t piece_bytes,
                                     int64_t block_bytes = io::kChecksumBlock);

// Calls f(from, to, count) for what a run copies of elements [begin, end) of its source: stretches without gaps, ascending. With
// it a loader empties one buffer after the other into the wanted tensor.
template <class F>
void for_each_stretch(const Run& run, int64_t begin, int64_t end, F f) {
  const bool starts_inside = run.times == 1 || begin < run.from + run.count;
  int64_t t = starts_inside ? 0 : (begin - run.from - run.count) / run.from_stride + 1;
  for (; t < run.times && run.from + t * run.from_stride < end; ++t) {
    const int64_t start = run.from + t * run.from_stride;
    const int64_t first = std::max(begin, start), last = std::min(end, start + run.count);
    if (first < last) f(first, run.to + t * run.to_stride + first - start, last - first);
  }
}

}  // namespace zt::ckpt
