#include <algorithm>

#include "packed/panel_kernels.h"

#if defined(__x86_64__)
#include <immintrin.h>

namespace zt::packed::avx2 {

namespace {

#define ZT_LOOPS_TARGET ZT_TARGET_AVX2
#define ZT_LANES static inline __attribute__((always_inline)) ZT_LOOPS_TARGET

struct PanelLanes256 {
  struct Floats {
    __m256 low, high;
  };
  struct Words {
    __m256i low, high;
  };
  using Table = Floats;
  struct Nf4Scales {
    static Floats read(const uint8_t*, const float*, int64_t, int64_t, int64_t) { return {__m256(), __m256()}; }
  };
  static constexpr bool kHasNf4Scales = false;
  static constexpr int kTilePanels = 1, kTileRows = 6, kFewRowPanels = 1, kFewRows = 6, kRowPanels = 4;
  static constexpr bool kCanPair = false;

  ZT_LANES Floats zero() { return {_mm256_setzero_ps(), _mm256_setzero_ps()}; }
  ZT_LANES Words load(const uint8_t* from) {
    const auto* const halves = reinterpret_cast<const __m256i*>(from);
    return {_mm256_loadu_si256(halves), _mm256_loadu_si256(halves + 1)};
  }
  ZT_LANES Floats load_floats(const float* from) { return {_mm256_loadu_ps(from), _mm256_loadu_ps(from + 8)}; }
  ZT_LANES void store(uint32_t* to, Words words) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), words.low);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to) + 1, words.high);
  }
  template <class T>
  ZT_LANES Words all_of(const T* word) {
    const __m256i all = _mm256_set1_epi32(*reinterpret_cast<const int32_t*>(word));
    return {all, all};
  }
  ZT_LANES Floats as_floats(Words words) { return {_mm256_castsi256_ps(words.low), _mm256_castsi256_ps(words.high)}; }
  ZT_LANES Words as_words(Floats floats) { return {_mm256_castps_si256(floats.low), _mm256_castps_si256(floats.high)}; }
  ZT_LANES Floats to_floats(Words words) { return {_mm256_cvtepi32_ps(words.low), _mm256_cvtepi32_ps(words.high)}; }
  template <int n>
  ZT_LANES Words left(Words words) {
    return {_mm256_slli_epi32(words.low, n), _mm256_slli_epi32(words.high, n)};
  }
  template <int n>
  ZT_LANES Words right(Words words) {
    return {_mm256_srli_epi32(words.low, n), _mm256_srli_epi32(words.high, n)};
  }
  template <int n>
  ZT_LANES Words right_signed(Words words) {
    return {_mm256_srai_epi32(words.low, n), _mm256_srai_epi32(words.high, n)};
  }
  ZT_LANES Words both(Words words, uint32_t mask) {
    const __m256i all = _mm256_set1_epi32(static_cast<int32_t>(mask));
    return {_mm256_and_si256(words.low, all), _mm256_and_si256(words.high, all)};
  }
  ZT_LANES Words either(Words a, Words b) { return {_mm256_or_si256(a.low, b.low), _mm256_or_si256(a.high, b.high)}; }
  ZT_LANES Words differ(Words words, uint32_t mask) {
    const __m256i all = _mm256_set1_epi32(static_cast<int32_t>(mask));
    return {_mm256_xor_si256(words.low, all), _mm256_xor_si256(words.high, all)};
  }
  ZT_LANES Floats times(Floats a, Floats b) { return {_mm256_mul_ps(a.low, b.low), _mm256_mul_ps(a.high, b.high)}; }
  ZT_LANES Floats fma(Floats a, Floats b, Floats c) {
    return {_mm256_fmadd_ps(a.low, b.low, c.low), _mm256_fmadd_ps(a.high, b.high, c.high)};
  }
  // Shifts the bits of a half to their places in a float, whose exponent is then too small by 112.
  ZT_LANES __m256 eight_halves(__m128i halves) {
    const __m256i wide = _mm256_cvtepu16_epi32(halves), sign = _mm256_and_si256(wide, _mm256_set1_epi32(0x8000));
    const __m256 number = _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_xor_si256(wide, sign), 13));
    const __m256 scaled = _mm256_mul_ps(number, _mm256_set1_ps(0x1p112F));
    return _mm256_or_ps(scaled, _mm256_castsi256_ps(_mm256_slli_epi32(sign, 16)));
  }
  ZT_LANES Floats load_halves(const uint8_t* from) {
    const auto* const halves = reinterpret_cast<const __m128i*>(from);
    return {eight_halves(_mm_loadu_si128(halves)), eight_halves(_mm_loadu_si128(halves + 1))};
  }
  ZT_LANES Table make_table(const float* table) { return table ? load_floats(table) : zero(); }
  // The index is in the lowest 4 bits of a word: 3 bits choose from 8 numbers, and the fourth one chooses the half of the table.
  ZT_LANES __m256 look_up_eight(Table table, __m256i index) {
    const __m256 low = _mm256_permutevar8x32_ps(table.low, index), high = _mm256_permutevar8x32_ps(table.high, index);
    return _mm256_blendv_ps(low, high, _mm256_castsi256_ps(_mm256_slli_epi32(index, 28)));
  }
  ZT_LANES Floats look_up(Table table, Words index) {
    return {look_up_eight(table, index.low), look_up_eight(table, index.high)};
  }

  // The instruction that multiplies bytes would saturate.
  ZT_LANES __m256i add_eight_fours(__m256i x, __m256i w, __m256i sum) {
    const __m256i even = _mm256_srai_epi16(_mm256_slli_epi16(x, 8), 8), odd = _mm256_srai_epi16(x, 8);
    const __m256i of_even = _mm256_and_si256(w, _mm256_set1_epi16(0xff)), of_odd = _mm256_srli_epi16(w, 8);
    sum = _mm256_add_epi32(sum, _mm256_madd_epi16(even, of_even));
    return _mm256_add_epi32(sum, _mm256_madd_epi16(odd, of_odd));
  }
  ZT_LANES Words add_fours_in_halves(Words x, Words w, Words sum) {
    return {add_eight_fours(x.low, w.low, sum.low), add_eight_fours(x.high, w.high, sum.high)};
  }
};

#define ZT_LOOPS_LANES PanelLanes256
#include "packed/panel_loops.inc"
#undef ZT_LOOPS_LANES

#undef ZT_LANES
#undef ZT_LOOPS_TARGET

}  // namespace

PanelKernels panel_kernels() {
  return kernels<false>(false);
}

}  // namespace zt::packed::avx2

#endif
