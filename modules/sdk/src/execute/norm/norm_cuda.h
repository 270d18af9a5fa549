// The kernel of NORM on a GPU.
#pragma once

#include <cstdint>

namespace zt {

// Adds the squares of x[begin, end) to `words` (ExactWords), in the order of norm_squares.cpp, on the current CUDA device, queued
// on `stream` (a cudaStream_t). x and words are in the device's memory; T: float, double, c10::BFloat16 or c10::Half. Throws
// std::runtime_error with CUDA's message if the launch fails. Defined only where ZT_HAS_CUDA is defined.
template <class T>
void add_squares_cuda(const T* x, int64_t begin, int64_t end, int64_t* words, void* stream);

}  // namespace zt
