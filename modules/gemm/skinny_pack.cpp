#include <cstring>
#include <utility>

#include "skinny_kernels.h"
#include "zt/base/float16.h"

// Functions marked ZT_INLINE are inlined into a function per instruction set, so that they are compiled for that set.
#define ZT_INLINE inline __attribute__((always_inline))

namespace zt::skinny {

namespace {

// --- panels ---

template <int lanes>
struct Lanes {
  static constexpr int kLanes = lanes;
};

// The functions of float16.h for whole vectors. With a loop over single numbers, values would leave the registers, which would
// cost a third of the GEMM's time.
template <int kLanes>
ZT_INLINE void load(Vector<float, kLanes>& to, const float* from) {
  std::memcpy(&to, from, sizeof(to));
}
template <int kLanes>
ZT_INLINE void load(Vector<float, kLanes>& to, const c10::BFloat16* from) {
  Vector<uint16_t, kLanes> narrow;
  std::memcpy(&narrow, from, sizeof(narrow));
  const Vector<uint32_t, kLanes> bits = __builtin_convertvector(narrow, Vector<uint32_t, kLanes>) << 16;
  std::memcpy(&to, &bits, sizeof(to));
}
template <int kLanes>
ZT_INLINE void load(Vector<float, kLanes>& to, const c10::Half* from) {
  using Bits = Vector<uint32_t, kLanes>;
  Vector<uint16_t, kLanes> narrow;
  std::memcpy(&narrow, from, sizeof(narrow));
  const auto half = __builtin_convertvector(narrow, Bits);
  const Bits magnitude = half & 0x7FFFU, exponent = Bits{} + (112U << 23);
  Bits bits = magnitude + bits_of(0.5F);
  std::memcpy(&to, &bits, sizeof(to));
  to -= 0.5F;
  std::memcpy(&bits, &to, sizeof(to));
  const Bits normal = (magnitude << 13) + (magnitude >= 0x7C00U ? exponent + exponent : exponent);
  bits = (magnitude < 0x0400U ? bits : normal) | (half & 0x8000U) << 16;
  std::memcpy(&to, &bits, sizeof(to));
}

// Transposes the square of kLanes lines: swaps the off-diagonal quarters of each square of 2 * kSide lines, for kSide = 1, 2, 4,
// ...
template <int kSide, int kLanes, int... kLane>
ZT_INLINE void swap_squares(Vector<float, kLanes> (&lines)[kLanes], std::integer_sequence<int, kLane...> lanes) {
#pragma GCC unroll 16
  for (int i = 0; i < kLanes; ++i) {
    if (i & kSide) continue;
    const auto a = lines[i], b = lines[i + kSide];
    lines[i] = __builtin_shufflevector(a, b, (kLane & kSide ? kLanes + kLane - kSide : kLane)...);
    lines[i + kSide] = __builtin_shufflevector(a, b, (kLane & kSide ? kLanes + kLane : kLane + kSide)...);
  }
  if constexpr (2 * kSide < kLanes) swap_squares<2 * kSide, kLanes>(lines, lanes);
}

template <int kLanes, int64_t width, class T>
ZT_INLINE void pack_across(float* to, const OperandLines<T>& from, int64_t depth) {
  int64_t p = 0;
  for (; p + kLanes <= depth; p += kLanes) {
    Vector<float, kLanes> lines[kLanes];
#pragma GCC unroll 16
    for (int i = 0; i < kLanes; ++i) load<kLanes>(lines[i], from.data + i * from.line + p);
    swap_squares<1, kLanes>(lines, std::make_integer_sequence<int, kLanes>());
#pragma GCC unroll 16
    for (int i = 0; i < kLanes; ++i) std::memcpy(to + (p + i) * width, &lines[i], sizeof(lines[i]));
  }
  for (; p < depth; ++p) {
    for (int i = 0; i < kLanes; ++i) to[p * width + i] = static_cast<float>(from.data[i * from.line + p]);
  }
}

template <int kLanes, int64_t width, class T>
ZT_INLINE void pack_along(float* to, const OperandLines<T>& from, int64_t end, int64_t depth) {
  for (int64_t p = 0; p < depth; ++p, to += width) {
    const T* step = from.data + p * from.step;
#pragma GCC unroll 3
    for (int64_t i = 0; i < end; i += kLanes) {
      Vector<float, kLanes> lines;
      load<kLanes>(lines, step + i);
      std::memcpy(to + i, &lines, sizeof(lines));
    }
  }
}

// Packs the lines [begin, end); lines from `count` on are zeros.
template <int64_t width, class T>
ZT_INLINE void pack_rest(float* to, const OperandLines<T>& from, int64_t begin, int64_t end, int64_t count, int64_t depth) {
  for (int64_t p = 0; p < depth; ++p, to += width) {
    const T* step = from.data + p * from.step;
    for (int64_t i = begin; i < end; ++i) to[i] = i < count ? static_cast<float>(step[i * from.line]) : 0.0F;
  }
}

}  // namespace

template <int64_t width, class T>
void pack(Isa isa, float* to, const OperandLines<T>& from, int64_t count, int64_t depth) {
  run_as<Lanes<4>, Lanes<8>, Lanes<16>>(
      isa, [=]<class F>(F) __attribute__((always_inline)) {
        constexpr int kLanes = F::kLanes < width ? F::kLanes : width;
        const int64_t full = count / kLanes * kLanes;
        if (from.step == 1) {
          for (int64_t i = 0; i < full; i += kLanes) pack_across<kLanes, width>(to + i, from.at(i, 0), depth);
        } else if (full == width) {
          pack_along<kLanes, width>(to, from, width, depth);
        } else {
          pack_along<kLanes, width>(to, from, full, depth);
        }
        if (full < count) pack_rest<width>(to, from, full, full + kLanes, count, depth);
      });
}

template void pack<kRows>(Isa, float*, const OperandLines<float>&, int64_t, int64_t);
template void pack<kRows>(Isa, float*, const OperandLines<c10::BFloat16>&, int64_t, int64_t);
template void pack<kRows>(Isa, float*, const OperandLines<c10::Half>&, int64_t, int64_t);
template void pack<kColumns>(Isa, float*, const OperandLines<float>&, int64_t, int64_t);
template void pack<kColumns>(Isa, float*, const OperandLines<c10::BFloat16>&, int64_t, int64_t);
template void pack<kColumns>(Isa, float*, const OperandLines<c10::Half>&, int64_t, int64_t);

}  // namespace zt::skinny
