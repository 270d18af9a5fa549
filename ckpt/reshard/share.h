// Who writes what: ranks that hold the same share the writing. Pure, and equal on all ranks for equal input.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "region.h"

namespace zt::ckpt {

// A piece ends in the middle of what several ranks hold only at a multiple of so many bytes of it.
constexpr int64_t kShareUnit = int64_t{1} << 20;

// Who holds which part of a tensor.
struct HeldTensor {
  struct Holder {
    int32_t rank;
    int64_t first, count;
  };
  // Regions of the same boxes: ranks mostly differ in first and count only.
  struct Cuts {
    std::vector<Box> boxes;
    std::vector<Holder> holders;
  };

  int64_t element_bytes = 0;
  std::vector<Cuts> cuts = {};  // no two of the same boxes

  // A rank may hold several regions of a tensor.
  void add(int32_t rank, const Region& region);
};

// Part of tensors[tensor] that a rank writes.
struct Share {
  int32_t tensor;
  Region region;

  bool operator==(const Share&) const = default;
};

// What each of `ranks` ranks writes, ascending by tensor: a rank writes only what it holds, and every element that anybody holds
// is written exactly once. Regions may overlap in any way. What has the same holders is dealt out as one row of bytes, so nearly
// all tensors stay whole: n holders cut it in at most n - 1 places.
//
// Balance: sets of holders are dealt out one after the other, small sets first, and each levels the bytes of its ranks as far as
// its own bytes go: no rank that gets some of them has then more than kShareUnit above the level (what is in one row is cut by
// half a unit too early or too late). If any two sets of holders are apart or one contains the other, as mostly on a mesh, then
// no rank writes more than the best division into single bytes would give the busiest rank, plus kShareUnit for each set in a
// chain of sets that contain each other; where all ranks hold the same, all are within 2 * kShareUnit.
//
// Where regions of different boxes overlap, what they share is written by the holders of the boxes that came first, and the rest
// of the others is cut into boxes: find it in the data by plan_copy.
std::vector<std::vector<Share>> share_writing(std::span<const HeldTensor> tensors, int ranks);

}  // namespace zt::ckpt
