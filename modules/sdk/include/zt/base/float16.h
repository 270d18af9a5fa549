// Conversions from bfloat16 and float16 to fp32 and back: the same functions for plain C++, AVX2, AVX-512 and CUDA.
// They have no branches and no tables, so that the compiler vectorizes loops over them. The results do not depend on whether
// the processor flushes denormal numbers.
#pragma once

#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include <cstdint>
#include <cstring>
#include <type_traits>

#if defined(__CUDACC__)
#define ZT_PER_ELEMENT __host__ __device__ __forceinline__
#else
#define ZT_PER_ELEMENT [[gnu::always_inline]] inline
#endif

namespace zt {

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

// Returns `value`, or the quiet positive NaN for every NaN: the sign of a NaN differs between processors.
ZT_PER_ELEMENT float with_one_nan(float value) {
  return value == value ? value : float_of(0x7FC00000);
}

// Both formats work on bit patterns. `widen` is exact. `narrow` rounds to nearest even and returns the same bits as c10.

// 1 + 8 + 7 bits: the upper half of an fp32 number. Every NaN is narrowed to the quiet positive one.
struct Bfloat16 {
  ZT_PER_ELEMENT static float widen(uint16_t half) { return float_of(static_cast<uint32_t>(half) << 16); }

  ZT_PER_ELEMENT static uint16_t narrow(float value) {
    // with_one_nan selects between floats. Compilers turn a selection between integers into 16-bit vectors, and packing them
    // costs more than the conversion.
    const uint32_t bits = bits_of(with_one_nan(value));
    return static_cast<uint16_t>((bits + 0x7FFF + (bits >> 16 & 1)) >>
                                 16);  // a carry into the exponent is correct, up to infinity
  }
};

// 1 + 5 + 10 bits. Numbers below 2^-14 are multiples of 2^-24. That is the spacing of fp32 numbers from 1/2 to 1, so adding 0.5
// rounds to it. A NaN is narrowed to the quiet NaN of the same sign.
struct Float16 {
  ZT_PER_ELEMENT static float widen(uint16_t half) {
    const uint32_t magnitude = half & 0x7FFF;
    const float tiny = float_of(bits_of(0.5F) + magnitude) - 0.5F;
    const uint32_t normal =
        (magnitude << 13) + (magnitude >= 0x7C00 ? 224U << 23 : 112U << 23);  // infinity and NaN keep their exponent of ones
    const uint32_t sign = static_cast<uint32_t>(half & 0x8000) << 16;
    return float_of(sign | (magnitude < 0x0400 ? bits_of(tiny) : normal));
  }

  ZT_PER_ELEMENT static uint16_t narrow(float value) {
    const uint32_t bits = bits_of(value), magnitude = bits & 0x7FFFFFFF;
    const float size = float_of(magnitude);
    const uint32_t tiny = bits_of(size + 0.5F) - bits_of(0.5F);  // the addition rounds to a multiple of 2^-24
    const uint32_t normal = (magnitude - (112U << 23) + 0x0FFF + (magnitude >> 13 & 1)) >> 13;
    // Select between floats here, too: their bit patterns are those of the result.
    const float finite = size < 0x1p-14F ? float_of(tiny) : float_of(normal);
    const float special = size == size ? float_of(0x7C00) : float_of(0x7E00);
    const float rounded = size < 0x1p16F ? finite : special;
    return static_cast<uint16_t>((bits >> 16 & 0x8000) | bits_of(rounded));
  }
};

// The type in which elements of type T are computed: float for 16-bit floats, T itself otherwise.
template <class T>
using Wide = std::conditional_t<std::is_same_v<T, c10::BFloat16> || std::is_same_v<T, c10::Half>, float, T>;

template <class T>
ZT_PER_ELEMENT Wide<T> widen(T x) {
  if constexpr (std::is_same_v<T, c10::BFloat16>) return Bfloat16::widen(x.x);
  else if constexpr (std::is_same_v<T, c10::Half>) return Float16::widen(x.x);
  else return x;
}

template <class T>
ZT_PER_ELEMENT T narrow(Wide<T> x) {
  if constexpr (std::is_same_v<T, c10::BFloat16>) return T(Bfloat16::narrow(x), T::from_bits());
  else if constexpr (std::is_same_v<T, c10::Half>) return T(Float16::narrow(x), T::from_bits());
  else return x;
}

}  // namespace zt
