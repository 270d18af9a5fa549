#include "kernels.h"

#include "zt/isa.h"

namespace zt::optim {

namespace {

constexpr int64_t kBlock = 64;   // elements between prefetches
constexpr int64_t kAhead = 512;  // how far ahead: hardware prefetchers stop at the end of a page. Worth 5 to 10 %

template <class T>
[[gnu::always_inline]] inline void prefetch(const T* block) {
  constexpr int64_t kCacheLine = 64 / sizeof(T);
#pragma GCC unroll 8
  for (int64_t i = 0; i < kBlock; i += kCacheLine) __builtin_prefetch(block + i);
}

template <class Rule, class T>
[[gnu::always_inline]] inline void apply_run(const Rule& rule, const Arrays<T>& arrays, int64_t begin, int64_t count) {
  T* __restrict param = arrays.param + begin;
  const T* __restrict grad = arrays.grad + begin;
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
}

// Inlined into one function per instruction set, where the compiler vectorises it.
template <class Rule, class T>
[[gnu::always_inline]] inline void apply(const Rule& shared, const Arrays<T>& arrays) {
  const Rule rule = shared;
  int64_t i = 0;
  for (; i + kAhead + kBlock <= arrays.count; i += kBlock) {
    prefetch(arrays.param + i + kAhead);
    prefetch(arrays.grad + i + kAhead);
    if constexpr (Rule::kStates > 0) prefetch(arrays.first + i + kAhead);
    if constexpr (Rule::kStates > 1) prefetch(arrays.second + i + kAhead);
    apply_run(rule, arrays, i, kBlock);
  }
  apply_run(rule, arrays, i, arrays.count - i);
}

template <class Rule, class T>
void apply_plain(const Rule& rule, const Arrays<T>& arrays) {
  apply(rule, arrays);
}
template <class Rule, class T>
ZT_TARGET_AVX2 void apply_avx2(const Rule& rule, const Arrays<T>& arrays) {
  apply(rule, arrays);
}
template <class Rule, class T>
ZT_TARGET_AVX512 void apply_avx512(const Rule& rule, const Arrays<T>& arrays) {
  apply(rule, arrays);
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
