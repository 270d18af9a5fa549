// The vector loops compiled for one instruction set, in a namespace of their own.
#define kernels kernels_avx2
#define ZT_CLONES
#include "kernel_results.h"
#include "kernels.cpp"

namespace zt::nn::kernels {
template std::vector<float> results(int64_t width);
template std::vector<double> results(int64_t width);
}  // namespace zt::nn::kernels
