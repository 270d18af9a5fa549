// The vector loops compiled for one instruction set: CMake gives it, and makes `kernels` a namespace of its own.
#include "kernel_results.h"
#include "kernels.cpp"

namespace zt::nn::kernels {
template std::vector<float> results(int64_t width);
template std::vector<double> results(int64_t width);
}  // namespace zt::nn::kernels
