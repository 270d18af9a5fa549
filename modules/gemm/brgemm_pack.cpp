#include "brgemm_pack.h"

#include <algorithm>
#include <cstring>
#include <utility>

// Functions marked ZT_INLINE are inlined into a function per instruction set, so that they are compiled for that set.
#define ZT_INLINE inline __attribute__((always_inline))

namespace zt::brgemm {

namespace {

constexpr int kSide = 16;  // of a square that is transposed in registers
using PackLine = Vector<Bits, kSide>;

// Transposes the square: swaps the off-diagonal quarters of each square of 2 * kHalf lines, for kHalf = 1, 2, 4, 8.
template <int kHalf, int... kLane>
ZT_INLINE void swap_squares(PackLine (&lines)[kSide], std::integer_sequence<int, kLane...> lanes) {
#pragma GCC unroll 16
  for (int i = 0; i < kSide; ++i) {
    if (i & kHalf) continue;
    const PackLine a = lines[i], b = lines[i + kHalf];
    lines[i] = __builtin_shufflevector(a, b, (kLane & kHalf ? kSide + kLane - kHalf : kLane)...);
    lines[i + kHalf] = __builtin_shufflevector(a, b, (kLane & kHalf ? kSide + kLane : kLane + kHalf)...);
  }
  if constexpr (2 * kHalf < kSide) swap_squares<2 * kHalf>(lines, lanes);
}

// to[i * to_line + p] = from[i + p * step], for kSide lines and elements.
ZT_INLINE void transpose_square(Bits* to, int64_t to_line, const Bits* from, int64_t step) {
  PackLine lines[kSide];
#pragma GCC unroll 16
  for (int p = 0; p < kSide; ++p) std::memcpy(&lines[p], from + p * step, sizeof(PackLine));
  swap_squares<1>(lines, std::make_integer_sequence<int, kSide>());
#pragma GCC unroll 16
  for (int i = 0; i < kSide; ++i) std::memcpy(to + i * to_line, &lines[i], sizeof(PackLine));
}

ZT_INLINE void pack_rows_here(Bits* to, const OperandLines<Bits>& from, int64_t count, int64_t depth, int64_t width) {
  const bool is_across = from.line == 1 && from.step != 1;
  // A row of squares reads whole cache lines, each once.
  const int64_t lines = is_across ? count / kSide * kSide : 0, steps = is_across ? depth / kSide * kSide : 0;
  for (int64_t p = 0; p < steps; p += kSide) {
    for (int64_t i = 0; i < lines; i += kSide) transpose_square(to + i * width + p, width, from.at(i, p).data, from.step);
  }
  for (int64_t i = 0; i < count; ++i) {
    Bits* row = to + i * width;
    const Bits* line = from.at(i, 0).data;
    if (from.step == 1) std::copy_n(line, depth, row);
    else
      for (int64_t p = i < lines ? steps : 0; p < depth; ++p) row[p] = line[p * from.step];
    std::fill(row + depth, row + width, Bits{0});
  }
}

ZT_INLINE void pack_pairs_here(Bits* to, const OperandLines<Bits>& from, int64_t count, int64_t depth, int64_t width) {
  for (int64_t p = 0; p < width; p += 2, to += 2 * count) {
    const Bits* first = from.at(0, p).data;
    const Bits* second = first + from.step;
    if (p + 1 < depth && from.line == 1) {
      for (int64_t i = 0; i < count; ++i) {
        to[2 * i] = first[i];
        to[2 * i + 1] = second[i];
      }
      continue;
    }
    for (int64_t i = 0; i < count; ++i) {
      to[2 * i] = p < depth ? first[i * from.line] : Bits{0};
      to[2 * i + 1] = p + 1 < depth ? second[i * from.line] : Bits{0};
    }
  }
}

// Marks the copy of a loop that is compiled for one instruction set.
template <Isa isa>
struct PackFor {};

}  // namespace

void pack_rows(Isa isa, Bits* to, const OperandLines<Bits>& from, int64_t count, int64_t depth, int64_t width) {
  run_as<PackFor<Isa::plain>, PackFor<Isa::avx2>, PackFor<Isa::avx512>>(
      isa, [=]<class F>(F) __attribute__((always_inline)) { pack_rows_here(to, from, count, depth, width); });
}

void pack_pairs(Isa isa, Bits* to, const OperandLines<Bits>& from, int64_t count, int64_t depth, int64_t width) {
  run_as<PackFor<Isa::plain>, PackFor<Isa::avx2>, PackFor<Isa::avx512>>(
      isa, [=]<class F>(F) __attribute__((always_inline)) { pack_pairs_here(to, from, count, depth, width); });
}

}  // namespace zt::brgemm
