// What the vector loops are written with: clones for the instruction sets, exp, sums in a fixed order.
#pragma once

#include <cmath>
#include <cstdint>
#include <type_traits>

#include "exponential.h"
#include "kernels.h"

// A sanitizer's run time is not up yet when the loader asks which clone to take. Tests define ZT_CLONES to get one form alone.
#if defined(ZT_CLONES)
#elif defined(__x86_64__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define ZT_CLONES __attribute__((target_clones("arch=x86-64-v4", "avx2", "default")))
#else
#define ZT_CLONES
#endif
// Before a loop over elements whose arrays are the same or do not meet: no look at run time, of which compilers make only few.
#if defined(__clang__)
#define ZT_APART _Pragma("clang loop vectorize(assume_safety)")
#else
#define ZT_APART _Pragma("GCC ivdep")
#endif

namespace zt::nn::kernels {

template <class W>
ZT_INLINE W sigmoid(W x) {
  return W(1) / (W(1) + exponential(-x));
}

constexpr int kLanes = 32;       // partial results of a row, whatever the vector length
constexpr int64_t kBlock = 256;  // elements after which partial sums are folded into doubles

// Calls body(begin, count) for each block of a row.
template <class Body>
ZT_INLINE void by_blocks(int64_t n, const Body& body) {
  for (int64_t begin = 0; begin < n; begin += kBlock) body(begin, n - begin < kBlock ? n - begin : kBlock);
}

// A block in the type that one computes with: where it is, or widened into `space` [kBlock]. Loops that widen and fold at the
// same time are not vectorised.
template <class T>
ZT_INLINE const Wide<T>* widened(const T* x, int64_t count, Wide<T>* space) {
  if constexpr (std::is_same_v<T, Wide<T>>) {
    return x;
  } else {
    for (int64_t j = 0; j < count; ++j) space[j] = widen(x[j]);
    return space;
  }
}

// A sum of a row's terms in a fixed order: lane by lane over a block, blocks in double, at last the lanes pairwise.
template <class W>
class OrderedSum {
 public:
  // Adds term(0), ..., term(count - 1): those of a block.
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
