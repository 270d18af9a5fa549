// Decides which rank writes which part of a tensor: ranks that hold the same elements share the writing. Pure functions.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "zt/reshard/region.h"

namespace zt::ckpt {

// Ranks that hold the same region divide it at multiples of this many bytes.
constexpr int64_t kShareUnit = int64_t{1} << 20;

// The ranks that hold a tensor, and which part each holds.
struct HeldTensor {
  struct Holder {
    int32_t rank;
    int64_t first, count;
  };
  // Regions with the same boxes. The regions of ranks mostly differ only in `first` and `count`.
  struct BoxHolders {
    std::vector<Box> boxes;
    std::vector<Holder> holders;
  };

  int64_t element_bytes = 0;
  std::vector<BoxHolders> by_boxes = {};  // no two have the same boxes

  // A rank may hold several regions of a tensor.
  void add(int32_t rank, const Region& region);
};

// A part of tensors[tensor] that a rank writes.
struct WriteShare {
  int32_t tensor;
  Region region;

  bool operator==(const WriteShare&) const = default;
};

// Returns the shares of each rank, ascending by tensor. A rank writes only elements that it holds, and every element that some
// rank holds is written exactly once. Regions may overlap in any way. The result is equal on all ranks for equal input.
//
// All regions with the same set of holders are concatenated to one sequence of bytes, which is divided among the holders. n
// holders divide it in at most n - 1 places, so nearly all tensors stay whole.
//
// Balance: sets of holders are processed one after the other, small sets first. Each set's bytes go to those of its ranks that
// have the fewest, so that their loads become equal. Rounding to kShareUnit moves each boundary by at most half a unit, so no
// rank that gets some of these bytes is more than kShareUnit above that equal load.
//
// Bound: let any two sets of holders be disjoint, or one contain the other, as mostly on a mesh. Then no rank writes more than
// the busiest rank does in the best division into single bytes, plus kShareUnit per set in a chain of sets that contain each
// other. If all ranks hold the same, their loads differ by at most 2 * kShareUnit.
//
// If regions of different boxes overlap, the holders of the boxes added first write the common elements. The rest of the other
// regions is divided into new boxes; make_copy_list finds these in a rank's data.
std::vector<std::vector<WriteShare>> share_writing(std::span<const HeldTensor> tensors, int ranks);

}  // namespace zt::ckpt
