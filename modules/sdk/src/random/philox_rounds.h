// The rounds of Philox4x32-10, for one counter or for a vector of counters.
#pragma once

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include <cstdint>

namespace zt {

// Multiplies the low 32 bits of every number of x by `multiplier`, for a 64-bit number x or a vector of these. x86 has one
// instruction for a vector, which the compiler does not select by itself, hence the builtins. -Wpsabi warns about passing vectors
// by value; here everything is inlined, so no vector is passed.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wpsabi"
template <class Lanes>
[[gnu::always_inline]] inline void multiply_low(const Lanes& x, uint32_t multiplier, Lanes& product) {
#if defined(__x86_64__) && !defined(__clang__)
  const Lanes y = Lanes{} + multiplier;
  if constexpr (sizeof(Lanes) == 64) {
    product = (Lanes)__builtin_ia32_pmuludq512_mask((__v16si)x, (__v16si)y, __v8di{}, 0xFF);
  } else if constexpr (sizeof(Lanes) == 32) {
    product = (Lanes)__builtin_ia32_pmuludq256((__v8si)x, (__v8si)y);
  } else if constexpr (sizeof(Lanes) == 16) {
    product = (Lanes)__builtin_ia32_pmuludq128((__v4si)x, (__v4si)y);
  } else {
    product = (x & 0xFFFFFFFF) * multiplier;
  }
#else
  product = (x & 0xFFFFFFFF) * multiplier;
#endif
}
#pragma GCC diagnostic pop

// Replaces the counter in `word` by its block. word[i] holds word i in the low 32 bits of each 64-bit number. Ignore the high 32
// bits, before and after the call.
template <class Lanes>
[[gnu::always_inline]] inline void philox_rounds(Lanes (&word)[4], uint64_t key) {
  constexpr uint32_t kMultiplier0 = 0xD2511F53, kMultiplier1 = 0xCD9E8D57;
  constexpr uint32_t kWeyl0 = 0x9E3779B9, kWeyl1 = 0xBB67AE85;
  constexpr int kRounds = 10;
  auto k0 = static_cast<uint32_t>(key), k1 = static_cast<uint32_t>(key >> 32);
#pragma GCC unroll 10
  for (int round = 0; round < kRounds; ++round, k0 += kWeyl0, k1 += kWeyl1) {
    Lanes p0, p1;
    multiply_low(word[0], kMultiplier0, p0);
    multiply_low(word[2], kMultiplier1, p1);
    word[0] = (p1 >> 32) ^ word[1] ^ k0;
    word[1] = p1;
    word[2] = (p0 >> 32) ^ word[3] ^ k1;
    word[3] = p0;
  }
}

}  // namespace zt
