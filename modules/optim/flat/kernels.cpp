#include "kernels.h"

#include <algorithm>
#include <type_traits>

#include "zt/base/isa.h"

namespace zt::optim {

namespace {

constexpr int64_t kBlock = 64;  // elements that are prefetched, converted and updated at once
// Elements between the update and the prefetch. Hardware prefetchers stop at the end of a page; this saves 5 to 10 % of the time.
constexpr int64_t kAhead = 512;

template <class T>
[[gnu::always_inline]] inline void prefetch(const T* block) {
  constexpr int64_t kCacheLine = 64 / sizeof(T);
#pragma GCC unroll 8
  for (int64_t i = 0; i < kBlock; i += kCacheLine) __builtin_prefetch(block + i);
}

template <class T>
[[gnu::always_inline]] inline void prefetch_block(const Arrays<T>& arrays, int states, int64_t begin) {
  prefetch(arrays.param + begin);
  if (arrays.grad_format == Format::as_param) prefetch(static_cast<const T*>(arrays.grad) + begin);
  else prefetch(static_cast<const uint16_t*>(arrays.grad) + begin);
  if (states > 0) prefetch(arrays.first + begin);
  if (states > 1) prefetch(arrays.second + begin);
  if (arrays.copy) prefetch(arrays.copy + begin);
}

template <class Half>
[[gnu::always_inline]] inline void widen_as(const uint16_t* __restrict half, float* __restrict wide, int64_t count) {
  for (int64_t i = 0; i < count; ++i) wide[i] = Half::widen(half[i]);
}
template <class Half>
[[gnu::always_inline]] inline void narrow_as(const float* __restrict wide, uint16_t* __restrict half, int64_t count) {
  for (int64_t i = 0; i < count; ++i) half[i] = Half::narrow(with_one_nan(wide[i]));
}

[[gnu::always_inline]] inline void widen(Format format, const uint16_t* half, float* wide, int64_t count) {
  if (format == Format::bfloat16) widen_as<Bfloat16>(half, wide, count);
  else widen_as<Float16>(half, wide, count);
}
[[gnu::always_inline]] inline void narrow(Format format, const float* wide, uint16_t* half, int64_t count) {
  if (format == Format::bfloat16) narrow_as<Bfloat16>(wide, half, count);
  else narrow_as<Float16>(wide, half, count);
}

// The conversions of one instruction set, for at most kBlock elements. They are not inlined: in each rule, they would make the
// code five times as large.
struct Conversions {
  void (*widen)(Format, const uint16_t*, float*, int64_t);
  void (*narrow)(Format, const float*, uint16_t*, int64_t);
};

[[gnu::noinline]] void widen_plain(Format format, const uint16_t* half, float* wide, int64_t count) {
  widen(format, half, wide, count);
}
[[gnu::noinline]] void narrow_plain(Format format, const float* wide, uint16_t* half, int64_t count) {
  narrow(format, wide, half, count);
}
[[gnu::noinline]] ZT_TARGET_AVX2 void widen_avx2(Format format, const uint16_t* half, float* wide, int64_t count) {
  widen(format, half, wide, count);
}
[[gnu::noinline]] ZT_TARGET_AVX2 void narrow_avx2(Format format, const float* wide, uint16_t* half, int64_t count) {
  narrow(format, wide, half, count);
}
[[gnu::noinline]] ZT_TARGET_AVX512 void widen_avx512(Format format, const uint16_t* half, float* wide, int64_t count) {
  widen(format, half, wide, count);
}
[[gnu::noinline]] ZT_TARGET_AVX512 void narrow_avx512(Format format, const float* wide, uint16_t* half, int64_t count) {
  narrow(format, wide, half, count);
}

// Returns the gradient from element `begin` on: in place, or widened into `space`.
template <class T>
[[gnu::always_inline]] inline const T* gradient(const Arrays<T>& arrays, const Conversions& conversions, int64_t begin,
                                                int64_t count, T* space) {
  if constexpr (std::is_same_v<T, float>) {
    if (arrays.grad_format != Format::as_param) {
      conversions.widen(arrays.grad_format, static_cast<const uint16_t*>(arrays.grad) + begin, space, count);
      return space;
    }
  }
  return static_cast<const T*>(arrays.grad) + begin;
}

template <class T>
[[gnu::always_inline]] inline void write_copy(const Arrays<T>& arrays, const Conversions& conversions, int64_t begin,
                                              int64_t count) {
  if constexpr (std::is_same_v<T, float>) {
    if (arrays.copy) conversions.narrow(arrays.copy_format, arrays.param + begin, arrays.copy + begin, count);
  }
}

// Updates at most kBlock elements. 16-bit gradients are widened in the first-level cache, so that the loop has one type only.
template <class Rule, class T>
[[gnu::always_inline]] inline void apply_run(const Rule& rule, const Arrays<T>& arrays, const Conversions& conversions,
                                             int64_t begin, int64_t count) {
  T space[kBlock];
  T* __restrict param = arrays.param + begin;
  const T* __restrict grad = gradient(arrays, conversions, begin, count, space);
  T* __restrict first = arrays.first + (Rule::kStates > 0 ? begin : 0);
  T* __restrict second = arrays.second + (Rule::kStates > 1 ? begin : 0);
#pragma GCC ivdep
  for (int64_t i = 0; i < count; ++i) {
    T p = param[i], a = 0, b = 0;
    if constexpr (Rule::kStates > 0) a = first[i];
    if constexpr (Rule::kStates > 1) b = second[i];
    rule(p, grad[i], a, b);
    param[i] = p;
    if constexpr (Rule::kStates > 0) first[i] = a;
    if constexpr (Rule::kStates > 1) second[i] = b;
  }
  write_copy(arrays, conversions, begin, count);
}

// Inlined into one function per instruction set, where the compiler vectorises the loop. `rule` and `arrays` are passed by value:
// stores to the arrays cannot change these copies, so they stay in registers.
template <class Rule, class T>
[[gnu::always_inline]] inline void apply(const Rule rule, const Arrays<T> arrays, const Conversions& conversions) {
  int64_t i = 0;
  for (; i + kAhead + kBlock <= arrays.count; i += kBlock) {
    prefetch_block(arrays, Rule::kStates, i + kAhead);
    apply_run(rule, arrays, conversions, i, kBlock);
  }
  for (; i < arrays.count; i += kBlock) apply_run(rule, arrays, conversions, i, std::min(kBlock, arrays.count - i));
}

template <class Rule, class T>
void apply_plain(const Rule& rule, const Arrays<T>& arrays) {
  apply(rule, arrays, {widen_plain, narrow_plain});
}
template <class Rule, class T>
ZT_TARGET_AVX2 void apply_avx2(const Rule& rule, const Arrays<T>& arrays) {
  apply(rule, arrays, {widen_avx2, narrow_avx2});
}
template <class Rule, class T>
ZT_TARGET_AVX512 void apply_avx512(const Rule& rule, const Arrays<T>& arrays) {
  apply(rule, arrays, {widen_avx512, narrow_avx512});
}

}  // namespace

template <class Rule>
void update_cpu(const Rule& rule, const Arrays<typename Rule::Element>& arrays, Isa isa) {
  switch (isa) {
    case Isa::plain:
      return apply_plain(rule, arrays);
    case Isa::avx2:
      return apply_avx2(rule, arrays);
    case Isa::avx512:
      return apply_avx512(rule, arrays);
  }
}

#define ZT_INSTANTIATE(...) template void update_cpu<__VA_ARGS__>(const __VA_ARGS__&, const Arrays<__VA_ARGS__::Element>&, Isa);
ZT_OPTIM_FOR_EACH_RULE(ZT_INSTANTIATE)

}  // namespace zt::optim
