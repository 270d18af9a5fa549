// What the vector loops are written with: clones for the instruction sets, 16-bit numbers, exp, sums in a fixed order.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numbers>

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

// --- numbers as they are stored, and as one computes with them ---
//
// Shifts and selects of integers, which vectorise on every instruction set and give what the machine's own instructions give.

ZT_INLINE double widen(double x) {
  return x;
}
ZT_INLINE float widen(float x) {
  return x;
}
ZT_INLINE float widen(c10::BFloat16 x) {
  return std::bit_cast<float>(static_cast<uint32_t>(x.x) << 16);
}
// Exponent and mantissa in their places in a float, times 2^(127 - 15): right for subnormal numbers too.
ZT_INLINE float widen(c10::Half x) {
  const uint32_t sign = static_cast<uint32_t>(x.x & 0x8000U) << 16, rest = static_cast<uint32_t>(x.x & 0x7FFFU) << 13;
  const uint32_t scaled = std::bit_cast<uint32_t>(std::bit_cast<float>(rest) * 0x1p112F);
  return std::bit_cast<float>(sign | ((x.x & 0x7C00U) == 0x7C00U ? scaled | 0x7F800000U : scaled));
}

// Rounds to the nearest number of type T, to the even one of two; nan stays nan.
template <class T>
T narrow(Wide<T> x) = delete;
template <>
ZT_INLINE double narrow<double>(double x) {
  return x;
}
template <>
ZT_INLINE float narrow<float>(float x) {
  return x;
}
template <>
ZT_INLINE c10::BFloat16 narrow<c10::BFloat16>(float x) {
  // A choice between floats: one between integers would be made in 16 bits, after more packing than computing.
  const auto bits = std::bit_cast<uint32_t>(x == x ? x : std::numeric_limits<float>::quiet_NaN());
  return {static_cast<uint16_t>((bits + 0x7FFFU + ((bits >> 16) & 1U)) >> 16), c10::BFloat16::from_bits()};
}
template <>
ZT_INLINE c10::Half narrow<c10::Half>(float x) {
  constexpr int32_t kNan = 0x7F800001, kOverflow = 0x47800000, kLeastNormal = 0x38800000;  // 2^16, 2^-14
  const auto bits = std::bit_cast<uint32_t>(x);
  const auto size = static_cast<int32_t>(bits & 0x7FFFFFFFU);
  // The last place of 0.5 is 2^-24, that of subnormal numbers: adding 0.5 rounds to it.
  const float shifted = std::bit_cast<float>(size) + 0.5F;
  const int32_t subnormal = std::bit_cast<int32_t>(shifted) - std::bit_cast<int32_t>(0.5F);
  const int32_t normal = (size + 0xFFF + ((size >> 13) & 1)) - ((127 - 15) << 23);
  const int32_t finite = size < kLeastNormal ? subnormal : normal >> 13;
  const int32_t large = size >= kNan ? 0x7E00 : 0x7C00;
  const int32_t result = size >= kOverflow ? large : finite;
  return {static_cast<uint16_t>(static_cast<uint32_t>(result) | (bits >> 16 & 0x8000U)), c10::Half::from_bits()};
}

// --- functions ---

template <class W>
ZT_INLINE W sigmoid(W x) {
  return W(1) / (W(1) + exponential(-x));
}

constexpr int kLanes = 16;       // partial results of a row, whatever the vector length
constexpr int64_t kBlock = 256;  // elements after which partial sums are folded into a double

// Calls body(terms, count) for each block of a row, where terms[j] is term(j) of the row's next `count` elements. A loop that
// only stores what it computes is vectorised for every type; one that folds at the same time is not for 16-bit numbers.
template <class W, class Term, class Body>
ZT_INLINE void by_blocks(int64_t n, const Term& term, const Body& body) {
  W terms[kBlock];
  for (int64_t begin = 0; begin < n; begin += kBlock) {
    const int64_t count = n - begin < kBlock ? n - begin : kBlock;
    for (int64_t j = 0; j < count; ++j) terms[j] = term(begin + j);
    body(static_cast<const W*>(terms), count);
  }
}

// sum over i of term(i), in a fixed order.
template <class W, class Term>
ZT_INLINE double ordered_sum(int64_t n, const Term& term) {
  double total = 0;
  by_blocks<W>(
      n, term, [&](const W* terms, int64_t count) __attribute__((always_inline)) {
        W lanes[kLanes] = {};
        int64_t i = 0;
        for (; i + kLanes <= count; i += kLanes) {
          for (int lane = 0; lane < kLanes; ++lane) lanes[lane] += terms[i + lane];
        }
        for (int lane = 0; i < count; ++i, ++lane) lanes[lane] += terms[i];
        for (const W lane : lanes) total += static_cast<double>(lane);
      });
  return total;
}

}  // namespace zt::nn::kernels
