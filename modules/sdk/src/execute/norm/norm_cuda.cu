#include "execute/norm/norm_cuda.h"
#include "execute/norm/norm_order.h"
#include "zt/base/cuda_launch.cuh"
#include "zt/execute/exact_words.h"

namespace zt {

namespace {

constexpr int kThreads = 256, kTeams = kThreads / kNormLanes;
static_assert(kNormLanes == 16, "two teams share a warp");
constexpr int64_t kMostBlocks = 1024;

using Word = unsigned long long;  // NOLINT: the type that atomicAdd takes

// A team of kNormLanes threads sums one block of elements at a time. The words of all teams of a block of threads are added in
// its shared memory: integers, so their order changes no bit.
template <class T>
__global__ void __launch_bounds__(kThreads) squares(const T* x, int64_t begin, int64_t end, Word* words) {
  __shared__ Word own[ExactWords::kCount];
  for (int i = threadIdx.x; i < ExactWords::kCount; i += kThreads) own[i] = 0;
  __syncthreads();
  const int lane = threadIdx.x % kNormLanes, team = threadIdx.x / kNormLanes;
  const unsigned members = 0xFFFFU << (threadIdx.x & kNormLanes);  // the team's half of the warp
  const int64_t last = (end + kNormBlock - 1) / kNormBlock, stride = static_cast<int64_t>(gridDim.x) * kTeams;
  for (int64_t block = begin / kNormBlock + static_cast<int64_t>(blockIdx.x) * kTeams + team; block < last; block += stride) {
    double sum = lane_squares(x, block, lane, begin, end);
    for (int half = kNormLanes / 2; half > 0; half /= 2) sum += __shfl_xor_sync(members, sum, half);
    if (lane == 0) add_exactly(sum, [&](int word, int64_t amount) { atomicAdd(&own[word], static_cast<Word>(amount)); });
  }
  __syncthreads();
  for (int i = threadIdx.x; i < ExactWords::kCount; i += kThreads) {
    if (own[i] != 0) atomicAdd(&words[i], own[i]);
  }
}

}  // namespace

template <class T>
void add_squares_cuda(const T* x, int64_t begin, int64_t end, int64_t* words, void* stream) {
  if (begin == end) return;
  const int64_t blocks = (end + kNormBlock - 1) / kNormBlock - begin / kNormBlock;
  const int64_t needed = (blocks + kTeams - 1) / kTeams;
  const auto grid = static_cast<unsigned>(needed < kMostBlocks ? needed : kMostBlocks);
  squares<<<grid, kThreads, 0, static_cast<cudaStream_t>(stream)>>>(x, begin, end, reinterpret_cast<Word*>(words));
  check_launch("the CUDA kernel of NORM");
}

#define ZT_INSTANTIATE(...) template void add_squares_cuda(const __VA_ARGS__*, int64_t, int64_t, int64_t*, void*);
ZT_INSTANTIATE(float)
ZT_INSTANTIATE(double)
ZT_INSTANTIATE(c10::BFloat16)
ZT_INSTANTIATE(c10::Half)

}  // namespace zt
