// Runs a row algorithm (device_pack.h) over all its rows.
#pragma once

#include <cstdint>

#include "device_pack.h"

namespace zt::nn::device {

constexpr int64_t kLeastLanes = 32, kMostLanes = 512;

// Returns the lanes per team for rows of `items` packs (or other items): a power of two from kLeastLanes to kMostLanes. Within
// these limits a lane gets one or two items.
constexpr int64_t lanes_for(int64_t items) {
  int64_t lanes = kLeastLanes;
  while (lanes < kMostLanes && lanes * 2 <= items) lanes *= 2;
  return lanes;
}

// Calls rows(team, r) for every r < rows.rows on the current CUDA device, queued on `stream` (a cudaStream_t). Throws
// std::runtime_error with CUDA's message if the launch fails. Defined only where ZT_HAS_CUDA is defined, for the algorithms
// listed in *_cuda.cu.
template <class Rows>
void run_cuda(const Rows& rows, void* stream);

}  // namespace zt::nn::device
