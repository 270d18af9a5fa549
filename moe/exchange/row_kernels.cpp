#include "exchange/row_kernels.h"

#include <algorithm>
#include <cstring>

#include "zt/base/isa.h"

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

// Functions marked ZT_INLINE are inlined into a function per instruction set, so that they are compiled for that set.
#define ZT_INLINE inline __attribute__((always_inline))
// Goes before a loop whose arrays do not overlap.
#if defined(__clang__)
#define ZT_NO_OVERLAP _Pragma("clang loop vectorize(assume_safety)")
#else
#define ZT_NO_OVERLAP _Pragma("GCC ivdep")
#endif

namespace zt::moe::kernels {

namespace {

struct Plain {};
struct Avx2 {};
struct Avx512 {};

constexpr int64_t kBlockElements = 512;  // of a row: their sums stay in the first-level cache

// Runs body(token) for all tokens, compiled for the processor's instruction set.
template <class Body>
void for_tokens(const Tokens& shape, const Body& body) {
  run_as<Plain, Avx2, Avx512>(
      best_isa(), [&](auto) __attribute__((always_inline)) {
        for (int64_t token = shape.begin; token < shape.end; ++token) body(token);
      });
#if defined(__SSE2__)
  if (shape.streams) _mm_sfence();
#endif
}

// Copies n elements; with `streams`, past the caches if the addresses allow it.
template <class T>
ZT_INLINE void copy(T* to, const T* from, int64_t n, bool streams) {
  const size_t bytes = static_cast<size_t>(n) * sizeof(T);
#if defined(__SSE2__)
  if (streams && reinterpret_cast<uintptr_t>(to) % 16 == 0 && bytes % 16 == 0) {
    auto* out = reinterpret_cast<__m128i*>(to);
    const auto* in = reinterpret_cast<const __m128i*>(from);
    for (size_t i = 0; i < bytes / 16; ++i) _mm_stream_si128(out + i, _mm_loadu_si128(in + i));
    return;
  }
#endif
  std::memcpy(to, from, bytes);
}

// Fetches a block of the row of an assignment into the cache. Rows lie scattered, so the processor does not foresee the next one.
template <int kForWriting, class T>
ZT_INLINE void fetch(const T* rows, const Tokens& shape, int64_t pair, int64_t begin, int64_t count) {
  constexpr size_t kLine = 64;  // bytes
  if (pair >= shape.end * shape.routes || shape.places[pair] < 0) return;
  const auto* first = reinterpret_cast<const char*>(rows + shape.places[pair] * shape.width + begin);
  for (size_t i = 0; i < static_cast<size_t>(count) * sizeof(T); i += kLine) __builtin_prefetch(first + i, kForWriting);
}

// Calls write(out, begin, count) for each block of a row. `out` is the block itself, or with `streams` a buffer that is then
// copied past the caches.
template <class T, class Write>
ZT_INLINE void by_blocks(T* row, const Tokens& shape, const Write& write) {
  alignas(64) T buffer[kBlockElements];
  for (int64_t begin = 0; begin < shape.width; begin += kBlockElements) {
    const int64_t count = std::min(kBlockElements, shape.width - begin);
    write(shape.streams ? buffer : row + begin, begin, count);
    if (shape.streams) copy(row + begin, buffer, count, true);
  }
}

template <class T>
struct Row {
  const T* data;
  Wide<T> factor;
};

// The sum of one or two rows, in registers. The zero makes a sum of negative zeros a positive one, as in `many`.
template <class T>
ZT_INLINE void one(T* out, Row<T> a, int64_t n) {
  ZT_NO_OVERLAP
  for (int64_t i = 0; i < n; ++i) out[i] = narrow<T>(Wide<T>(0) + a.factor * widen(a.data[i]));
}
template <class T>
ZT_INLINE void two(T* out, Row<T> a, Row<T> b, int64_t n) {
  ZT_NO_OVERLAP
  for (int64_t i = 0; i < n; ++i) out[i] = narrow<T>(Wide<T>(0) + a.factor * widen(a.data[i]) + b.factor * widen(b.data[i]));
}

// The sum of any number of rows. row_at(route) returns a row whose data is null if the route is empty.
template <class T, class RowAt>
ZT_INLINE void many(T* out, const T* more, int64_t routes, const RowAt& row_at, int64_t n) {
  Wide<T> sum[kBlockElements];
  if (more) {
    for (int64_t i = 0; i < n; ++i) sum[i] = widen(more[i]);
  } else {
    std::fill_n(sum, n, Wide<T>(0));
  }
  for (int64_t route = 0; route < routes; ++route) {
    const Row<T> row = row_at(route);
    if (!row.data) continue;
    ZT_NO_OVERLAP
    for (int64_t i = 0; i < n; ++i) sum[i] += row.factor * widen(row.data[i]);
  }
  ZT_NO_OVERLAP
  for (int64_t i = 0; i < n; ++i) out[i] = narrow<T>(sum[i]);
}

template <class T>
ZT_INLINE Wide<T> inner_product(const T* a, const T* b, int64_t n) {
  constexpr int64_t kSums = 16;
  Wide<T> sums[kSums] = {};
  int64_t i = 0;
  for (; i + kSums <= n; i += kSums) {
    for (int64_t j = 0; j < kSums; ++j) sums[j] += widen(a[i + j]) * widen(b[i + j]);
  }
  for (; i < n; ++i) sums[i % kSums] += widen(a[i]) * widen(b[i]);
  Wide<T> total = 0;
  for (const Wide<T> sum : sums) total += sum;
  return total;
}

}  // namespace

template <class T>
void copy_to_rows(T* rows, const T* tokens, const Tokens& shape) {
  for_tokens(
      shape, [&](int64_t token) __attribute__((always_inline)) {
        for (int64_t pair = token * shape.routes; pair < (token + 1) * shape.routes; ++pair) {
          if (shape.places[pair] < 0) continue;
          T* row = rows + shape.places[pair] * shape.width;
          for (int64_t begin = 0; begin < shape.width; begin += kBlockElements) {
            const int64_t count = std::min(kBlockElements, shape.width - begin);
            if (!shape.streams) fetch<1>(rows, shape, pair + 1, begin, count);
            copy(row + begin, tokens + token * shape.width + begin, count, shape.streams);
          }
        }
      });
}

template <class T>
void sum_to_tokens(T* tokens, const T* rows, const Wide<T>* factors, const T* more, const Tokens& shape) {
  for_tokens(
      shape, [&](int64_t token) __attribute__((always_inline)) {
        const int64_t* places = shape.places + token * shape.routes;
        const Wide<T>* own = factors ? factors + token * shape.routes : nullptr;
        const auto is_used = [&](int64_t route) __attribute__((always_inline)) {
          return route < shape.routes && places[route] >= 0;
        };
        by_blocks(
            tokens + token * shape.width, shape, [&](T * out, int64_t begin, int64_t n) __attribute__((always_inline)) {
              for (int64_t route = 0; route < shape.routes; ++route)
                fetch<0>(rows, shape, (token + 1) * shape.routes + route, begin, n);
              const auto row_at = [&](int64_t route) __attribute__((always_inline)) {
                return Row<T>{is_used(route) ? rows + places[route] * shape.width + begin : nullptr,
                              own ? own[route] : Wide<T>(1)};
              };
              if (!more && shape.routes == 1 && is_used(0)) one(out, row_at(0), n);
              else if (!more && shape.routes == 2 && is_used(0) && is_used(1)) two(out, row_at(0), row_at(1), n);
              else many(out, more ? more + token * shape.width + begin : nullptr, shape.routes, row_at, n);
            });
      });
}

template <class T>
void sum_backward(T* of_rows, Wide<T>* of_factors, const T* of_tokens, const T* rows, const Wide<T>* factors,
                  const Tokens& shape) {
  for_tokens(
      shape, [&](int64_t token) __attribute__((always_inline)) {
        const T* gradient = of_tokens + token * shape.width;
        for (int64_t pair = token * shape.routes; pair < (token + 1) * shape.routes; ++pair) {
          if (shape.places[pair] < 0) continue;
          const int64_t first = shape.places[pair] * shape.width;
          of_factors[pair] = inner_product(gradient, rows + first, shape.width);
          by_blocks(
              of_rows + first, shape, [&](T * out, int64_t begin, int64_t n) __attribute__((always_inline)) {
                fetch<0>(rows, shape, pair + 1, begin, n);
                if (!shape.streams) fetch<1>(of_rows, shape, pair + 1, begin, n);
                const Wide<T> factor = factors ? factors[pair] : Wide<T>(1);
                ZT_NO_OVERLAP
                for (int64_t i = 0; i < n; ++i) out[i] = narrow<T>(factor * widen(gradient[begin + i]));
              });
        }
      });
}

#define ZT_INSTANTIATE(T)                                                             \
  template void copy_to_rows(T*, const T*, const Tokens&);                            \
  template void sum_to_tokens(T*, const T*, const Wide<T>*, const T*, const Tokens&); \
  template void sum_backward(T*, Wide<T>*, const T*, const T*, const Wide<T>*, const Tokens&);
ZT_INSTANTIATE(double)
ZT_INSTANTIATE(float)
ZT_INSTANTIATE(c10::BFloat16)
ZT_INSTANTIATE(c10::Half)
#undef ZT_INSTANTIATE

}  // namespace zt::moe::kernels
