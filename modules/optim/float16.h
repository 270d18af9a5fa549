// 16-bit floats as their bits, widened to fp32 and rounded from it: the same functions for plain C++, AVX2, AVX-512 and CUDA.
// No branches and no tables, so that loops over them become vector code; the results do not depend on whether the processor
// flushes denormal numbers.
#pragma once

#include <cstdint>
#include <cstring>

#if defined(__CUDACC__)
#define ZT_PER_ELEMENT __host__ __device__ __forceinline__
#else
#define ZT_PER_ELEMENT [[gnu::always_inline]] inline
#endif

namespace zt::optim {

ZT_PER_ELEMENT uint32_t bits_of(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  return bits;
}

ZT_PER_ELEMENT float float_of(uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

// 1 + 8 + 7 bits: the upper half of an fp32 number. A `Format` of these loops has widen, which is exact, and narrow, which
// rounds to nearest even; every NaN becomes the one quiet positive NaN, since the sign of a NaN differs between processors.
struct Bfloat16 {
  ZT_PER_ELEMENT static float widen(uint16_t half) { return float_of(static_cast<uint32_t>(half) << 16); }

  ZT_PER_ELEMENT static uint16_t narrow(float value) {
    const uint32_t bits = bits_of(value);
    const uint32_t rounded = (bits + 0x7FFF + (bits >> 16 & 1)) >> 16;  // a carry into the exponent is right, up to infinity
    return static_cast<uint16_t>(value != value ? 0x7FC0 : rounded);
  }
};

// 1 + 5 + 10 bits. Numbers below 2^-14 are multiples of 2^-24, which is the spacing of fp32 numbers from 1/2 to 1.
struct Float16 {
  ZT_PER_ELEMENT static float widen(uint16_t half) {
    const uint32_t magnitude = half & 0x7FFF;
    const float tiny = float_of(bits_of(0.5F) + magnitude) - 0.5F;
    const uint32_t shifted = magnitude << 13;
    const uint32_t normal = shifted + (magnitude >= 0x7C00 ? 224U << 23 : 112U << 23);  // infinity and NaN stay so
    const uint32_t sign = static_cast<uint32_t>(half & 0x8000) << 16;
    return float_of(sign | (magnitude < 0x0400 ? bits_of(tiny) : normal));
  }

  ZT_PER_ELEMENT static uint16_t narrow(float value) {
    const uint32_t bits = bits_of(value), magnitude = bits & 0x7FFFFFFF;
    const uint32_t tiny = bits_of(float_of(magnitude) + 0.5F) - bits_of(0.5F);  // the addition rounds to a multiple of 2^-24
    const uint32_t normal = (magnitude - (112U << 23) + 0x0FFF + (magnitude >> 13 & 1)) >> 13;
    const uint32_t finite = magnitude < 113U << 23 ? tiny : normal;
    const uint32_t rounded = magnitude < 143U << 23 ? finite : 0x7C00;  // 2^16 and above
    return static_cast<uint16_t>(value != value ? 0x7E00 : (bits >> 16 & 0x8000) | rounded);
  }
};

}  // namespace zt::optim
