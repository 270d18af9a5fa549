// The sums of squares of NORM: 16 lanes of double over blocks of 256 elements. The code is compiled once per instruction set.
#include <ATen/Dispatch.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "execute/norm/norm_cuda.h"
#include "execute/norm/norm_order.h"
#include "zt/base/cuda_launch.h"
#include "zt/base/error.h"
#include "zt/base/float16.h"
#include "zt/base/tensor.h"
#include "zt/execute/gradient_norm.h"
#include "zt/model/unit.h"

namespace zt {

static_assert(kNormBlock == FlatLayout::kBlock);

namespace {

constexpr int64_t kAhead = 8 * kNormBlock;  // distance of the prefetch, in elements

// Adds lane j + half to lane j for half = 8, 4, 2, 1, within one register.
[[gnu::always_inline]] inline double fold(const Vector<double, 2>& x) {
  return x[0] + x[1];
}
[[gnu::always_inline]] inline double fold(const Vector<double, 4>& x) {
  return fold(__builtin_shufflevector(x, x, 0, 1) + __builtin_shufflevector(x, x, 2, 3));
}
[[gnu::always_inline]] inline double fold(const Vector<double, 8>& x) {
  return fold(__builtin_shufflevector(x, x, 0, 1, 2, 3) + __builtin_shufflevector(x, x, 4, 5, 6, 7));
}

template <class Whole, class Half, int... kIndex>
[[gnu::always_inline]] inline void split(const Whole& x, Half& low, Half& high, std::integer_sequence<int, kIndex...>) {
  low = __builtin_shufflevector(x, x, kIndex...);
  high = __builtin_shufflevector(x, x, (static_cast<int>(sizeof...(kIndex)) + kIndex)...);
}

// Lane j sums the squares of elements j, j + 16, ...; then the lanes are added as a tree. `kWidth` doubles fill one register:
// it decides how many registers hold the lanes, not the order of additions.
template <int kWidth, class T>
[[gnu::always_inline]] inline double lanes_sum(const T* x) {
  constexpr int kRegisters = kNormLanes / kWidth;
  Vector<double, kWidth> lanes[kRegisters] = {};
  for (int i = 0; i < kNormBlock; i += kNormLanes) {
#pragma GCC unroll 4
    for (int r = 0; r < kRegisters; r += 2) {
      // A full register of floats makes two of doubles: converting half of one would cost a shuffle more.
      Vector<T, 2 * kWidth> narrow;
      std::memcpy(&narrow, x + i + r * kWidth, sizeof(narrow));
      Vector<double, kWidth> low, high;
      split(__builtin_convertvector(narrow, Vector<double, 2 * kWidth>), low, high, std::make_integer_sequence<int, kWidth>());
      lanes[r] += low * low;
      lanes[r + 1] += high * high;
    }
  }
#pragma GCC unroll 4
  for (int half = kRegisters / 2; half > 0; half /= 2) {
#pragma GCC unroll 4
    for (int r = 0; r < half; ++r) lanes[r] += lanes[r + half];
  }
  return fold(lanes[0]);
}

// Widens 16-bit elements to fp32 first, in the first-level cache.
template <int kWidth, class T>
[[gnu::always_inline]] inline double block_sum(const T* x) {
  if constexpr (sizeof(T) == 2) {
    float wide[kNormBlock];
    for (int i = 0; i < kNormBlock; ++i) wide[i] = widen(x[i]);
    return lanes_sum<kWidth>(wide);
  } else {
    return lanes_sum<kWidth>(x);
  }
}

// With the hardware's prefetcher alone, a single stream reaches two thirds of the memory's bandwidth.
template <class T>
[[gnu::always_inline]] inline void prefetch(const T* block) {
  constexpr int kCacheLine = 64 / sizeof(T);
  for (int i = 0; i < kNormBlock; i += kCacheLine) __builtin_prefetch(block + i);
}

// Reads whole blocks in place. A partial block at either end is copied and filled up with zeros, which change no lane's bits.
template <int kWidth, class T>
[[gnu::always_inline]] inline void sum_range(const T* x, int64_t begin, int64_t end, ExactSum& sum) {
  while (begin < end) {
    const int64_t block = begin / kNormBlock * kNormBlock;
    const int64_t stop = std::min<int64_t>(end, block + kNormBlock);
    if (block + kAhead + kNormBlock <= end) prefetch(x + block + kAhead);
    if (stop - begin == kNormBlock) {
      sum.add(block_sum<kWidth>(x + block));
    } else {
      T padded[kNormBlock] = {};
      std::memcpy(padded + (begin - block), x + begin, (stop - begin) * sizeof(T));
      sum.add(block_sum<kWidth>(padded));
    }
    begin = stop;
  }
}

template <class T>
void sum_plain(const T* x, int64_t begin, int64_t end, ExactSum& sum) {
  sum_range<2>(x, begin, end, sum);
}
template <class T>
ZT_TARGET_AVX2 void sum_avx2(const T* x, int64_t begin, int64_t end, ExactSum& sum) {
  sum_range<4>(x, begin, end, sum);
}
template <class T>
ZT_TARGET_AVX512 void sum_avx512(const T* x, int64_t begin, int64_t end, ExactSum& sum) {
  sum_range<8>(x, begin, end, sum);
}

template <class T>
void sum_with(Isa isa, const T* x, int64_t begin, int64_t end, ExactSum& sum) {
  switch (isa) {
    case Isa::plain:
      return sum_plain(x, begin, end, sum);
    case Isa::avx2:
      return sum_avx2(x, begin, end, sum);
    case Isa::avx512:
      return sum_avx512(x, begin, end, sum);
  }
}

// Throws Misuse unless a norm may be taken of elements [begin, end) of `flat`.
void check_squares(const at::Tensor& flat, int64_t begin, int64_t end) {
  if (!flat.defined() || flat.dim() != 1 || !flat.is_contiguous())
    misuse("a gradient norm is taken of a flat contiguous buffer, got {}", describe(flat));
  const at::ScalarType dtype = flat.scalar_type();
  if (dtype != at::kFloat && dtype != at::kDouble && dtype != at::kBFloat16 && dtype != at::kHalf)
    misuse("a gradient norm is taken in float32, float64, bfloat16 or float16, got {}", describe(flat));
  if (begin < 0 || begin > end || end > flat.numel())
    misuse("elements [{}, {}) lie outside a buffer of {}", begin, end, flat.numel());
}

}  // namespace

void add_squares(const at::Tensor& flat, int64_t begin, int64_t end, ExactSum& sum, Isa isa) {
  check_squares(flat, begin, end);
  if (!is_for_host(flat)) misuse("add_squares reads host memory, got {}", describe(flat));
  const auto add = [&]<class T>() { sum_with(isa, flat.const_data_ptr<T>(), begin, end, sum); };
  switch (flat.scalar_type()) {
    case at::kFloat:
      return add.operator()<float>();
    case at::kDouble:
      return add.operator()<double>();
    case at::kBFloat16:
      return add.operator()<c10::BFloat16>();
    default:
      return add.operator()<c10::Half>();
  }
}

at::Tensor squares_on_device(const at::Tensor& flat, int64_t begin, int64_t end) {
  check_squares(flat, begin, end);
  if (!flat.is_cuda()) misuse("squares_on_device reads the memory of a GPU, got {}", describe(flat));
#ifdef ZT_HAS_CUDA
  const at::Tensor words = at::zeros({ExactWords::kCount}, flat.options().dtype(at::kLong));
  launch_on(flat.device(), [&](void* stream) {
    AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, flat.scalar_type(), "squares_on_device", [&] {
      add_squares_cuda(flat.const_data_ptr<scalar_t>(), begin, end, words.data_ptr<int64_t>(), stream);
    });
  });
  return words;
#else
  misuse("the norm of {} is to be taken, but this build has no CUDA code: build ztoolkit where nvcc is found", describe(flat));
#endif
}

}  // namespace zt
