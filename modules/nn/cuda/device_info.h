// The compute capability of a GPU, on which it depends which kernels of LibTorch run there.
#pragma once

namespace zt::nn::device {

// Returns the major number of the compute capability of a CUDA device; 0 if CUDA does not tell. Defined only where ZT_HAS_CUDA is
// defined.
int compute_capability(int device);

}  // namespace zt::nn::device
