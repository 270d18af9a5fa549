// How ExactSum (gradient_norm.h) holds a number: the same function for C++ and CUDA.
#pragma once

#include <cstdint>
#include <cstring>

#include "zt/base/float16.h"

namespace zt {

// Limb i counts multiples of 2^(32 i - 1074). Three counts of what is not finite follow.
struct ExactWords {
  static constexpr int kLimbs = 66;  // 2098 bits for double, and 45 bits of headroom in the last limb
  static constexpr int kNan = kLimbs, kPlusInf = kLimbs + 1, kMinusInf = kLimbs + 2;
  static constexpr int kCount = kLimbs + 3;
};

// Adds x to words by calls of add(word, int64_t amount), at most three. The amounts of limbs are below 2^32 in absolute value.
template <class Add>
ZT_PER_ELEMENT void add_exactly(double x, const Add& add) {
  uint64_t bits;
  std::memcpy(&bits, &x, sizeof(bits));
  const auto exponent = static_cast<int>(bits >> 52 & 0x7FF);
  if (exponent == 0x7FF) {
    add(x != x ? ExactWords::kNan : x > 0 ? ExactWords::kPlusInf : ExactWords::kMinusInf, 1);
    return;
  }
  const int64_t sign = static_cast<int64_t>(bits) >> 63;  // 0, or -1 for a negative number
  const uint64_t fraction = bits & 0xFFFFFFFFFFFFF;
  const uint64_t significand = exponent == 0 ? fraction : fraction | 1ULL << 52;
  const int shift = exponent == 0 ? 0 : exponent - 1;
  const uint64_t low = (significand & 0xFFFFFFFF) << (shift & 31);
  const uint64_t high = (significand >> 32) << (shift & 31);
  const auto put = [&](int limb, uint64_t amount) { add(limb, (static_cast<int64_t>(amount) ^ sign) - sign); };
  const int limb = shift >> 5;
  put(limb, low & 0xFFFFFFFF);
  put(limb + 1, (low >> 32) + (high & 0xFFFFFFFF));
  if (high >> 32) put(limb + 2, high >> 32);
}

}  // namespace zt
