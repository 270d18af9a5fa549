// Reductions with the same bits as on every other backend: NCCL moves the data, and ATen reduces it along the fixed tree.
#pragma once

#include "core/operation.h"
#include "nccl/calls.h"

namespace zt::comm {

// Starts an all_reduce, reduce_scatter or reduce, also of lists, on site.stream, which is the current stream during the call.
// Requires is_reducible_on_device.
//
// Cost for n bytes in the longer tensor and W ranks: all_reduce sends 2 n (W - 1) / W in two groups of calls, reduce_scatter half
// of that in one, reduce n in one. Scratch: n (W - 1) / W, for the root of a reduce n (W - 1), and the scratch of device_tree.
void reduce_in_order(const NcclSite& site, const Operation& operation);

}  // namespace zt::comm
