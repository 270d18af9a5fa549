#include <algorithm>

#include "packed/panel_kernels.h"

#if defined(__x86_64__)
#include <immintrin.h>

namespace zt::packed::avx512 {

namespace {

#define ZT_LOOPS_TARGET ZT_TARGET_AVX512
#define ZT_LANES_MEMBER inline __attribute__((always_inline)) ZT_LOOPS_TARGET
#define ZT_LANES static ZT_LANES_MEMBER

using SumLanes512 [[gnu::vector_size(64)]] = float;
using WordLanes512 [[gnu::vector_size(64)]] = uint32_t;
using SignedLanes512 [[gnu::vector_size(64)]] = int32_t;

// GCC 12 warns of its own header for some intrinsics, so operators of vectors stand for them.
struct PanelLanes512 {
  using Floats = SumLanes512;
  using Words = WordLanes512;
  using Table = __m512;
  static constexpr int kTilePanels = 2, kTileRows = 12, kFewRowPanels = 4, kFewRows = 5, kRowPanels = 8;
  static constexpr bool kCanPair = true, kHasNf4Scales = true;

  ZT_LANES Floats zero() { return Floats{}; }
  ZT_LANES Words load(const uint8_t* from) { return (Words)_mm512_loadu_si512(from); }
  ZT_LANES Floats load_floats(const float* from) { return (Floats)_mm512_loadu_ps(from); }
  ZT_LANES void store(uint32_t* to, Words words) { _mm512_storeu_si512(to, (__m512i)words); }
  template <class T>
  ZT_LANES Words all_of(const T* word) {
    return (Words)_mm512_set1_epi32(*reinterpret_cast<const int32_t*>(word));
  }
  ZT_LANES Floats as_floats(Words words) { return (Floats)words; }
  ZT_LANES Words as_words(Floats floats) { return (Words)floats; }
  ZT_LANES Floats to_floats(Words words) { return __builtin_convertvector((SignedLanes512)words, Floats); }
  template <int n>
  ZT_LANES Words left(Words words) {
    return words << n;
  }
  template <int n>
  ZT_LANES Words right(Words words) {
    return words >> n;
  }
  template <int n>
  ZT_LANES Words right_signed(Words words) {
    return (Words)((SignedLanes512)words >> n);
  }
  ZT_LANES Words both(Words words, uint32_t mask) { return words & mask; }
  ZT_LANES Words either(Words a, Words b) { return a | b; }
  ZT_LANES Words differ(Words words, uint32_t mask) { return words ^ mask; }
  ZT_LANES Floats times(Floats a, Floats b) { return a * b; }
  ZT_LANES Floats fma(Floats a, Floats b, Floats c) { return (Floats)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c); }
  ZT_LANES Floats load_halves(const uint8_t* from) {
    return (Floats)_mm512_maskz_cvtph_ps(0xffff, _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)));
  }
  ZT_LANES Table make_table(const float* table) { return table ? _mm512_loadu_ps(table) : _mm512_setzero_ps(); }
  // The index is in the lowest 4 bits of a word.
  ZT_LANES Floats look_up(Table table, Words index) { return (Floats)_mm512_maskz_permutexvar_ps(0xffff, (__m512i)index, table); }

  // The scales of 16 rows of nested nf4: map[code] * scale + offset. Most groups have the blocks of the group before.
  class Nf4Scales {
   public:
    // `map`: nf4's tables. `group`: the number of the first row's group. The next row has that number plus `groups`.
    ZT_LANES_MEMBER Floats read(const uint8_t* codes, const float* map, int64_t group, int64_t groups, int64_t blocks) {
      const auto* const table = reinterpret_cast<const Nf4Block*>(map + kNf4MapEntries);
      SignedLanes512 numbers = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
      numbers = (static_cast<int32_t>(group) + numbers * static_cast<int32_t>(groups)) >> 8;
      if (_mm512_cmpneq_epi32_mask((__m512i)numbers, (__m512i)blocks_) != 0) {
        blocks_ = numbers;
        alignas(64) float scales[kPanelRows], offsets[kPanelRows];
        for (int64_t i = 0; i < kPanelRows; ++i) {
          const Nf4Block& block = table[std::min<int64_t>(numbers[i], blocks - 1)];
          scales[i] = block.scale;
          offsets[i] = block.offset;
        }
        scales_ = load_floats(scales);
        offsets_ = load_floats(offsets);
      }
      const __m512i index = _mm512_maskz_cvtepu8_epi32(0xffff, _mm_loadu_si128(reinterpret_cast<const __m128i*>(codes)));
      return (Floats)look_up_map(map, index) * scales_ + offsets_;
    }

   private:
    // Looks up 5 bits of the index in each eighth of the map. The upper 3 bits choose among the results.
    ZT_LANES __m512 look_up_map(const float* map, __m512i index) {
      __m512 found[8];
#pragma GCC unroll 8
      for (int i = 0; i < 8; ++i)
        found[i] = _mm512_permutex2var_ps(_mm512_loadu_ps(map + 32 * i), index, _mm512_loadu_ps(map + 32 * i + 16));
      const __mmask16 odd = _mm512_test_epi32_mask(index, _mm512_set1_epi32(32));
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i) found[i] = _mm512_mask_blend_ps(odd, found[2 * i], found[2 * i + 1]);
      const __mmask16 second = _mm512_test_epi32_mask(index, _mm512_set1_epi32(64));
      const __m512 lower = _mm512_mask_blend_ps(second, found[0], found[1]);
      const __m512 upper = _mm512_mask_blend_ps(second, found[2], found[3]);
      return _mm512_mask_blend_ps(_mm512_test_epi32_mask(index, _mm512_set1_epi32(128)), lower, upper);
    }

    SignedLanes512 blocks_ = SignedLanes512{} - 1;
    Floats scales_, offsets_;
  };

  // These instructions belong to extensions that this function is not compiled for, so that it serves all processors with
  // AVX-512. Their names are written for the assembler instead.
  ZT_LANES Floats add_pairs(Words x, Words w, Floats sum) {
    __asm__("vdpbf16ps %2, %1, %0" : "+v"(sum) : "v"(w), "v"(x));
    return sum;
  }
  ZT_LANES Words add_fours(Words x, Words w, Words sum) {
    __asm__("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(w), "v"(x));
    return sum;
  }
  // The same sum without an extension. The instruction that multiplies bytes would saturate.
  ZT_LANES Words add_fours_in_halves(Words x, Words w, Words sum) {
    const __m512i even = _mm512_srai_epi16(_mm512_slli_epi16((__m512i)x, 8), 8), odd = _mm512_srai_epi16((__m512i)x, 8);
    const __m512i of_even = (__m512i)(w & 0x00ff00ffU), of_odd = (__m512i)((w >> 8) & 0x00ff00ffU);
    return sum + (Words)_mm512_madd_epi16(even, of_even) + (Words)_mm512_madd_epi16(odd, of_odd);
  }
};

#define ZT_LOOPS_LANES PanelLanes512
#include "packed/panel_loops.inc"
#undef ZT_LOOPS_LANES

#undef ZT_LANES
#undef ZT_LANES_MEMBER
#undef ZT_LOOPS_TARGET

}  // namespace

PanelKernels panel_kernels(bool has_vnni, bool has_bf16) {
  return has_vnni ? kernels<true>(has_bf16) : kernels<false>(has_bf16);
}

}  // namespace zt::packed::avx512

#endif
