// Runs a row algorithm (device_pack.h) on a GPU. For .cu files only.
#pragma once

#include "device_run.h"
#include "zt/base/cuda_launch.cuh"

namespace zt::nn::device {

constexpr unsigned kWarp = 32;

// Returns the value of lane (i ^ offset), where i is this lane.
template <class V>
ZT_DEVICE V from_lane(const V& value, unsigned offset);
template <>
ZT_DEVICE double from_lane(const double& value, unsigned offset) {
  return __shfl_xor_sync(~0U, value, offset);
}
template <>
ZT_DEVICE Two from_lane(const Two& value, unsigned offset) {
  return {from_lane(value.a, offset), from_lane(value.b, offset)};
}
template <>
ZT_DEVICE kernels::RowStats from_lane(const kernels::RowStats& value, unsigned offset) {
  return {from_lane(value.largest, offset), from_lane(value.sum, offset)};
}

// Combines the values of `count` lanes: lane i with lane i ^ count / 2, then with lane i ^ count / 4, ... All lanes get the same
// bits, because combine(a, b) equals combine(b, a).
template <class V, class Combine>
ZT_DEVICE V butterfly(V value, unsigned count, const Combine& combine) {
  for (unsigned offset = count / 2; offset > 0; offset /= 2) value = combine(value, from_lane(value, offset));
  return value;
}

// The team of a block of threads. The number of warps is a power of two.
struct BlockTeam {
  template <class Body>
  ZT_DEVICE void each(int64_t n, const Body& body) const {
    for (int64_t i = threadIdx.x; i < n; i += blockDim.x) body(i);
  }

  template <class V, class Take, class Combine>
  ZT_DEVICE V reduce(int64_t n, V start, const Take& take, const Combine& combine) const {
    __shared__ alignas(V) unsigned char memory[kWarp * sizeof(V)];
    V* of_warps = reinterpret_cast<V*>(memory);
    V own = start;
    for (int64_t i = threadIdx.x; i < n; i += blockDim.x) take(own, i);
    own = butterfly(own, kWarp, combine);
    const unsigned warps = blockDim.x / kWarp;
    if (warps == 1) return own;
    __syncthreads();  // all threads have read the result of the previous reduce
    if (threadIdx.x % kWarp == 0) of_warps[threadIdx.x / kWarp] = own;
    __syncthreads();
    return butterfly(of_warps[threadIdx.x % warps], warps, combine);
  }

  template <class Body>
  ZT_DEVICE void once(const Body& body) const {
    if (threadIdx.x == 0) body();
  }
  ZT_DEVICE void join() const { __syncthreads(); }
};

template <class Rows>
__global__ void __launch_bounds__(kMostLanes) each_row(Rows rows) {
  const BlockTeam team;
  for (int64_t row = blockIdx.x; row < rows.rows; row += gridDim.x) rows(team, row);
}

template <class Rows>
void run_cuda(const Rows& rows, void* stream) {
  constexpr int64_t kMostBlocks = int64_t{1} << 30;
  if (rows.rows == 0) return;
  const auto blocks = static_cast<unsigned>(rows.rows < kMostBlocks ? rows.rows : kMostBlocks);
  each_row<<<blocks, static_cast<unsigned>(lanes_for(rows.items())), 0, static_cast<cudaStream_t>(stream)>>>(rows);
  check_launch("a CUDA kernel of a layer");
}

// Instantiates run_cuda for one algorithm, or for an algorithm with each stored type.
#define ZT_RUN_ON_CUDA(...) template void run_cuda<__VA_ARGS__>(const __VA_ARGS__&, void*);
#define ZT_RUN_ALL_ON_CUDA(ROWS)      \
  ZT_RUN_ON_CUDA(ROWS<double>)        \
  ZT_RUN_ON_CUDA(ROWS<float>)         \
  ZT_RUN_ON_CUDA(ROWS<c10::BFloat16>) \
  ZT_RUN_ON_CUDA(ROWS<c10::Half>)

}  // namespace zt::nn::device
