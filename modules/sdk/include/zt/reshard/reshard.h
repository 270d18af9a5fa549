// Computes which elements to copy from saved parts of a tensor into a wanted part. Pure functions.
#pragma once

#include <cstdint>
#include <vector>

#include "zt/reshard/region.h"

namespace zt {

// A copy of equal, evenly spaced stretches. For t in [0, times), `count` elements from number from + t * from_stride of saved
// region `source` go to number to + t * to_stride of the wanted region. Numbers count from the region's first element. Strides
// are 0 if times = 1.
struct CopyRun {
  int32_t source;
  int64_t from, to, count, times, from_stride, to_stride;

  bool operator==(const CopyRun&) const = default;
};

struct CopyList {
  std::vector<CopyRun> runs;  // ascending by source, then by from
  int64_t missing = 0;        // wanted elements that no saved region holds
};

// Returns a list that copies every wanted element that some saved region holds exactly once, also if saved regions overlap.
// Requires regions that are valid (validate_region) for a tensor of this shape.
//
// Number of runs: one per pair of a saved and the wanted region if both are intervals of one order (parts of equal boxes, or
// whole rows of the tensor). Otherwise per pair of boxes: one run if their intersection has at most two dims after neighbouring
// dims are joined; else one run per index of the remaining dims, which are the shorter ones.
//
// Time: independent of the number of elements. S log S for S saved regions that are intervals. Otherwise each box that overlaps
// the wanted region is also compared with its neighbours along the dim in which boxes have the fewest neighbours.
CopyList make_copy_list(const std::vector<int64_t>& shape, const std::vector<Region>& saved, const Region& wanted);

}  // namespace zt
