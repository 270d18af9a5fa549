// Compiles the vector loops for one instruction set, which CMake sets. A macro from CMake renames the namespace `kernels`.
#include "cpu/activation_kernels.cpp"
#include "cpu/norm_kernels.cpp"
#include "cpu/row_kernels.cpp"
#include "kernel_results.h"

namespace zt::nn::kernels {
template std::vector<float> results<float>(int64_t width);
template std::vector<double> results<double>(int64_t width);
template std::vector<float> results<c10::BFloat16>(int64_t width);
template std::vector<float> results<c10::Half>(int64_t width);
}  // namespace zt::nn::kernels
