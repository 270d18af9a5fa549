// Reductions whose sums have the same bits as on every other backend: NCCL moves the data, ATen adds it up in the fixed tree.
#pragma once

#include "core/operation.h"
#include "nccl/calls.h"

namespace zt::comm {

// Starts an all_reduce, reduce_scatter or reduce, also of lists, on site.stream, which is the current one meanwhile. The dtype is
// one of is_reducible_on_device.
//
// Cost for n bytes in the longer tensor and W ranks: all_reduce sends 2 n (W - 1) / W in two groups of calls, reduce_scatter half
// of it in one, reduce n in one. Scratch: n (W - 1) / W and what device_tree needs; of reduce at the root, n (W - 1).
void reduce_in_order(const NcclSite& site, const Operation& operation);

}  // namespace zt::comm
