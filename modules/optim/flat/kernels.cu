#include <type_traits>

#include "kernels.h"
#include "zt/base/cuda_launch.cuh"

namespace zt::optim {

namespace {

constexpr int kThreads = 256;
constexpr int64_t kMaxBlocks = 1 << 16;

template <class T>
__device__ T gradient(const Arrays<T>& arrays, int64_t i) {
  if constexpr (std::is_same_v<T, float>) {
    if (arrays.grad_format == Format::bfloat16) return Bfloat16::widen(static_cast<const uint16_t*>(arrays.grad)[i]);
    if (arrays.grad_format == Format::float16) return Float16::widen(static_cast<const uint16_t*>(arrays.grad)[i]);
  }
  return static_cast<const T*>(arrays.grad)[i];
}

template <class T>
__device__ void write_copy(const Arrays<T>& arrays, int64_t i, T param) {
  if constexpr (std::is_same_v<T, float>) {
    const T value = with_one_nan(param);
    if (arrays.copy) {
      arrays.copy[i] = arrays.copy_format == Format::bfloat16 ? Bfloat16::narrow(value) : Float16::narrow(value);
    }
  }
}

template <class Rule, class T>
__global__ void apply(Rule rule, Arrays<T> arrays) {
  const int64_t stride = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < arrays.count; i += stride) {
    T p = arrays.param[i], a = 0, b = 0;
    if constexpr (Rule::kStates > 0) a = arrays.first[i];
    if constexpr (Rule::kStates > 1) b = arrays.second[i];
    rule(p, gradient(arrays, i), a, b);
    arrays.param[i] = p;
    if constexpr (Rule::kStates > 0) arrays.first[i] = a;
    if constexpr (Rule::kStates > 1) arrays.second[i] = b;
    write_copy(arrays, i, p);
  }
}

}  // namespace

template <class Rule>
void update_cuda(const Rule& rule, const Arrays<typename Rule::Element>& arrays, void* stream) {
  if (arrays.count == 0) return;
  const int64_t needed = (arrays.count + kThreads - 1) / kThreads;
  const auto blocks = static_cast<unsigned>(needed < kMaxBlocks ? needed : kMaxBlocks);
  apply<<<blocks, kThreads, 0, static_cast<cudaStream_t>(stream)>>>(rule, arrays);
  check_launch("the CUDA kernel of an optimizer");
}

#define ZT_INSTANTIATE(...) \
  template void update_cuda<__VA_ARGS__>(const __VA_ARGS__&, const Arrays<__VA_ARGS__::Element>&, void*);
ZT_OPTIM_FOR_EACH_RULE(ZT_INSTANTIATE)

}  // namespace zt::optim
