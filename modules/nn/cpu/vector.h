// Helpers of the vector loops: clones for the instruction sets, exp, and sums in a fixed order.
#pragma once

#include <cstdint>
#include <type_traits>

#include "exponential.h"
#include "kernels.h"

// Compiles a function once per instruction set; the loader chooses a clone. Not with sanitizers, whose run time is not
// initialised when the loader chooses. Tests define ZT_CLONES to compile for one instruction set only.
#if defined(ZT_CLONES)
#elif defined(__x86_64__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define ZT_CLONES __attribute__((target_clones("arch=x86-64-v4", "avx2", "default")))
#else
#define ZT_CLONES
#endif
// Goes before a loop whose arrays are equal or do not overlap. The compiler then needs no overlap checks at run time; it
// vectorises only loops that need few of them.
#if defined(__clang__)
#define ZT_NO_OVERLAP _Pragma("clang loop vectorize(assume_safety)")
#else
#define ZT_NO_OVERLAP _Pragma("GCC ivdep")
#endif

namespace zt::nn::kernels {

template <class W>
ZT_INLINE W sigmoid(W x) {
  return W(1) / (W(1) + exponential(-x));
}

constexpr int kLanes = 32;       // partial results per row, independent of the vector length
constexpr int64_t kBlock = 256;  // elements per block; the partial sums of a block are added to doubles

// Calls body(begin, count) for each block of a row.
template <class Body>
ZT_INLINE void by_blocks(int64_t n, const Body& body) {
  for (int64_t begin = 0; begin < n; begin += kBlock) body(begin, n - begin < kBlock ? n - begin : kBlock);
}

// Returns a block of x as Wide<T>: in place, or widened into `space` [kBlock]. This is a loop of its own, because compilers do
// not vectorise loops that widen and reduce at once.
template <class T>
ZT_INLINE const Wide<T>* widened(const T* x, int64_t count, Wide<T>* space) {
  if constexpr (std::is_same_v<T, Wide<T>>) {
    return x;
  } else {
    for (int64_t j = 0; j < count; ++j) space[j] = widen(x[j]);
    return space;
  }
}

// Sums the terms of a row in a fixed order: per lane over a block, then per lane over the blocks in double, then the lanes
// pairwise.
template <class W>
class OrderedSum {
 public:
  // Adds term(0), ..., term(count - 1), the terms of one block.
  template <class Term>
  ZT_INLINE void add(int64_t count, const Term& term) {
    W lanes[kLanes] = {};
    int64_t i = 0;
    for (; i + kLanes <= count; i += kLanes) {
      for (int lane = 0; lane < kLanes; ++lane) lanes[lane] += term(i + lane);
    }
    for (int lane = 0; i < count; ++i, ++lane) lanes[lane] += term(i);
    for (int lane = 0; lane < kLanes; ++lane) totals_[lane] += static_cast<double>(lanes[lane]);
  }
  ZT_INLINE double total() {
    for (int half = kLanes / 2; half > 0; half /= 2) {
      for (int lane = 0; lane < half; ++lane) totals_[lane] += totals_[lane + half];
    }
    return totals_[0];
  }

 private:
  double totals_[kLanes] = {};
};

}  // namespace zt::nn::kernels
