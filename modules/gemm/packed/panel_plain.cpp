#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "packed/panel_kernels.h"

namespace zt::packed::plain {

namespace {

#define ZT_LOOPS_TARGET

struct PlainPanelLanes {
  static constexpr int kCount = 16;
  struct Words {
    uint32_t of[kCount];
  };
  struct Floats {
    float of[kCount];
  };
  using Table = Floats;
  struct Nf4Scales {
    static Floats read(const uint8_t*, const float*, int64_t, int64_t, int64_t) { return {}; }
  };
  static constexpr bool kHasNf4Scales = false;
  static constexpr int kTilePanels = 1, kTileRows = 2, kFewRowPanels = 1, kFewRows = 2, kRowPanels = 1;
  static constexpr bool kCanPair = false;

  // Returns {make(0), make(1), ...}.
  template <class Result, class Make>
  static Result each(const Make& make) {
    Result result;
    for (int i = 0; i < kCount; ++i) result.of[i] = make(i);
    return result;
  }
  static Floats zero() { return {}; }
  static Words load(const uint8_t* from) {
    Words words;
    std::memcpy(words.of, from, sizeof(words.of));
    return words;
  }
  static Floats load_floats(const float* from) {
    return each<Floats>([&](int i) { return from[i]; });
  }
  static void store(uint32_t* to, const Words& words) { std::memcpy(to, words.of, sizeof(words.of)); }
  template <class T>
  static Words all_of(const T* word) {
    return each<Words>([&](int) { return std::bit_cast<uint32_t>(*word); });
  }
  static Floats as_floats(const Words& words) { return std::bit_cast<Floats>(words); }
  static Words as_words(const Floats& floats) { return std::bit_cast<Words>(floats); }
  static Floats to_floats(const Words& words) {
    return each<Floats>([&](int i) { return static_cast<float>(static_cast<int32_t>(words.of[i])); });
  }
  template <int n>
  static Words left(const Words& words) {
    return each<Words>([&](int i) { return words.of[i] << n; });
  }
  template <int n>
  static Words right(const Words& words) {
    return each<Words>([&](int i) { return words.of[i] >> n; });
  }
  template <int n>
  static Words right_signed(const Words& words) {
    return each<Words>([&](int i) { return static_cast<uint32_t>(static_cast<int32_t>(words.of[i]) >> n); });
  }
  static Words both(const Words& words, uint32_t mask) {
    return each<Words>([&](int i) { return words.of[i] & mask; });
  }
  static Words either(const Words& a, const Words& b) {
    return each<Words>([&](int i) { return a.of[i] | b.of[i]; });
  }
  static Words differ(const Words& words, uint32_t mask) {
    return each<Words>([&](int i) { return words.of[i] ^ mask; });
  }
  static Floats times(const Floats& a, const Floats& b) {
    return each<Floats>([&](int i) { return a.of[i] * b.of[i]; });
  }
  static Floats fma(const Floats& a, const Floats& b, const Floats& c) {
    return each<Floats>([&](int i) { return std::fma(a.of[i], b.of[i], c.of[i]); });
  }
  // A float with the bits of a half in their places has an exponent that is too small by 112.
  static Floats load_halves(const uint8_t* from) {
    return each<Floats>([&](int i) {
      uint16_t half = 0;
      std::memcpy(&half, from + 2 * i, sizeof(half));
      const float number = std::bit_cast<float>((half & 0x7fffU) << 13) * 0x1p112F;
      return (half & 0x8000U) != 0 ? -number : number;
    });
  }
  static Table make_table(const float* table) { return table ? load_floats(table) : zero(); }
  static Floats look_up(const Table& table, const Words& index) {
    return each<Floats>([&](int i) { return table.of[index.of[i] & 15]; });
  }
  static Words add_fours_in_halves(const Words& x, const Words& w, const Words& sum) {
    return each<Words>([&](int i) {
      int32_t of = static_cast<int32_t>(sum.of[i]);
      for (int shift = 0; shift < 32; shift += 8)
        of += static_cast<int8_t>(x.of[i] >> shift) * static_cast<int32_t>(w.of[i] >> shift & 255);
      return static_cast<uint32_t>(of);
    });
  }
};

#define ZT_LOOPS_LANES PlainPanelLanes
#include "packed/panel_loops.inc"
#undef ZT_LOOPS_LANES

#undef ZT_LOOPS_TARGET

}  // namespace

PanelKernels panel_kernels() {
  return kernels<false>(false);
}

}  // namespace zt::packed::plain
