// From the parts of a tensor that are in files to the part that is wanted: what is copied from where. Pure.
#pragma once

#include <cstdint>
#include <vector>

#include "region.h"

namespace zt::ckpt {

// For t in [0, times): elements [from + t * from_stride, + count) of saved region `source` are elements
// [to + t * to_stride, + count) of the wanted region, both counted from the region's first element. Strides are 0 where times
// = 1.
struct Run {
  int32_t source;
  int64_t from, to, count, times, from_stride, to_stride;

  bool operator==(const Run&) const = default;
};

struct CopyPlan {
  std::vector<Run> runs;  // ascending by source, then by from
  int64_t missing = 0;    // wanted elements that no saved region holds
};

// What to copy so that every wanted element that some saved region holds is copied exactly once, also where saved regions
// overlap. The regions are valid (validate_region) for a tensor of this shape.
//
// Few runs: two parts that follow each other in the same order (cuts of equal boxes, or whole rows) have one; otherwise two boxes
// have one where what they share is at most two-dimensional once neighbouring dims are joined, and one for each index of the
// other, shorter dims elsewhere. The time does not depend on the number of elements. With S saved regions it is S log S and,
// unless the parts follow each other, for each box that overlaps the wanted region the number of those beside it along the dim
// where these are fewest.
CopyPlan plan_copy(const std::vector<int64_t>& shape, const std::vector<Region>& saved, const Region& wanted);

}  // namespace zt::ckpt
