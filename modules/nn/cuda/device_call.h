// Chooses between the loops for the CPU and those for a GPU.
#pragma once

#include <ATen/core/Tensor.h>

#include "device_run.h"
#include "zt/base/cuda_launch.h"
#include "zt/base/error.h"
#include "zt/base/tensor.h"

namespace zt::nn {

// For a tensor on CUDA, queues the row algorithm on the current stream of its device and returns true. For a tensor on which the
// host computes, does nothing and returns false. Throws Misuse for other devices, and for CUDA in a build without CUDA code.
template <class Rows>
bool on_gpu(const at::Tensor& x, [[maybe_unused]] const Rows& rows) {
  if (is_for_host(x)) return false;
  if (!x.is_cuda()) misuse("layers compute on cpu and cuda, and compute shapes on meta; got {}", describe(x));
#ifdef ZT_HAS_CUDA
  launch_on(x.device(), [&](void* stream) { device::run_cuda(rows, stream); });
  return true;
#else
  misuse("a layer got {}, but this build has no CUDA code: build ztoolkit where nvcc is found", describe(x));
#endif
}

}  // namespace zt::nn
