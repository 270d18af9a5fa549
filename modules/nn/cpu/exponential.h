// exp for vector loops, in plain arithmetic, so that every instruction set gives the same bits.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <numbers>

// Functions marked ZT_INLINE are inlined into a function per instruction set, so that they are compiled for that set.
#define ZT_INLINE inline __attribute__((always_inline))

namespace zt::nn {

// Returns 2^n times the Taylor polynomial of degree 7 in r, where x = n ln(2) + r and |r| <= ln(2) / 2. There the truncation
// error is r^8 / 8! < 6e-9.
ZT_INLINE float exponential(float x) {
  constexpr float kLow = -87.3F, kHigh = 88.3F;                      // the range in which 2^n is a normal number
  constexpr float kRound = 0x1.8p23F;                                // adding it leaves the nearest integer in the low bits
  constexpr float kLn2High = 0x1.62e4p-1F, kLn2Low = 1.4286068e-6F;  // kLn2High has 15 bits, so n * kLn2High is exact
  const float above = x < kLow ? kLow : x;
  const float clamped = above > kHigh ? kHigh : above;
  const float shifted = clamped * std::numbers::log2e_v<float> + kRound;
  const float n = shifted - kRound;
  const float r = (clamped - n * kLn2High) - n * kLn2Low;
  float p = 1.0F / 5040;
  p = p * r + 1.0F / 720;
  p = p * r + 1.0F / 120;
  p = p * r + 1.0F / 24;
  p = p * r + 1.0F / 6;
  p = p * r + 0.5F;
  p = p * r + 1.0F;
  p = p * r + 1.0F;
  const auto exponent = std::bit_cast<uint32_t>(shifted) - std::bit_cast<uint32_t>(kRound) + 127;
  const float result = p * std::bit_cast<float>(exponent << 23);
  return x < kLow ? 0.0F : result;
}
ZT_INLINE double exponential(double x) {
  return std::exp(x);
}

}  // namespace zt::nn
