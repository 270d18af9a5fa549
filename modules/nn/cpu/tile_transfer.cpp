#include <algorithm>
#include <cstring>
#include <utility>

#include "tile.h"
#include "tile_forms.h"
#include "zt/base/float16.h"

namespace zt::nn::tile {

namespace {

// Converts kChunk numbers. They are all read before the first one is written, so the compiler need not ask whether they overlap.
template <class A, class T>
ZT_INLINE void load_chunk(A* to, const T* from, const A* scale, int64_t scale_step) {
  A chunk[kChunk];
  for (int j = 0; j < kChunk; ++j) chunk[j] = widen(from[j]) * scale[j * scale_step];
  std::memcpy(to, chunk, sizeof(chunk));
}

template <class A, class T>
ZT_INLINE void load_rows(A* to, const T* from, int64_t stride, int64_t rows, int64_t columns, A scale) {
  for (int64_t i = 0; i < rows; ++i, to += padded(columns), from += stride) {
    int64_t d = 0;
    for (; d + kChunk <= columns; d += kChunk) load_chunk(to + d, from + d, &scale, 0);
    for (; d < columns; ++d) to[d] = widen(from[d]) * scale;
    for (; d < padded(columns); ++d) to[d] = 0;
  }
}

template <class A, class T>
ZT_INLINE void load_scaled_columns(A* to, int64_t row, const T* from, int64_t stride, int64_t rows, int64_t columns,
                                   const A* scale, int64_t scale_step) {
  for (int64_t d = 0; d < rows; ++d, to += row, from += stride) {
    int64_t j = 0;
    for (; j + kChunk <= columns; j += kChunk) load_chunk(to + j, from + j, scale + j * scale_step, scale_step);
    for (; j < columns; ++j) to[j] = widen(from[j]) * scale[j * scale_step];
  }
}

template <class A>
using Row [[gnu::vector_size(kChunk * sizeof(A))]] = A;

// Swaps the lanes of `low` whose index has the bit `half` with the lanes of `high` whose index does not have it.
template <int half, class A, int... lane>
ZT_INLINE void exchange(Row<A>& low, Row<A>& high, std::integer_sequence<int, lane...>) {
  const Row<A> a = low, b = high;
  low = __builtin_shufflevector(a, b, (lane & half ? kChunk + lane - half : lane)...);
  high = __builtin_shufflevector(a, b, (lane & half ? kChunk + lane : lane + half)...);
}

template <int half, class A>
ZT_INLINE void exchange_all(Row<A>* rows) {
#pragma GCC unroll 16
  for (int i = 0; i < kChunk; ++i) {
    if (!(i & half)) exchange<half, A>(rows[i], rows[i + half], std::make_integer_sequence<int, kChunk>());
  }
  if constexpr (half > 1) exchange_all<half / 2, A>(rows);
}

// Writes to(d, j) = from(j, d) for j, d < kChunk. Rows of `from` from `count` on count as 0.
template <class A>
ZT_INLINE void transpose_chunk(A* to, int64_t to_row, const A* from, int64_t from_row, int64_t count) {
  Row<A> rows[kChunk] = {};
  for (int64_t j = 0; j < std::min(count, kChunk); ++j) std::memcpy(&rows[j], from + j * from_row, sizeof(rows[j]));
  exchange_all<kChunk / 2, A>(rows);
  for (int64_t d = 0; d < kChunk; ++d) std::memcpy(to + d * to_row, &rows[d], sizeof(rows[d]));
}

template <class A, class T>
ZT_INLINE void store_rows(T* to, int64_t stride, const A* from, int64_t rows, int64_t columns, const A* scale, A scales) {
  for (int64_t i = 0; i < rows; ++i, to += stride, from += padded(columns)) {
    const A factor = scale ? scale[i] * scales : scales;
    for (int64_t d = 0; d < columns; ++d) to[d] = narrow<T>(from[d] * factor);
  }
}

}  // namespace

template <class A, class T>
void load(Isa isa, A* to, const T* from, int64_t stride, int64_t rows, int64_t columns, A scale) {
  run(
      isa, [=](auto) __attribute__((always_inline)) { load_rows(to, from, stride, rows, columns, scale); });
}

template <class A, class T>
void load_columns(Isa isa, A* to, int64_t row, const T* from, int64_t stride, int64_t rows, int64_t columns, const A* scale) {
  run(
      isa, [=](auto) __attribute__((always_inline)) {
        constexpr A kOne = 1;
        if (scale) load_scaled_columns(to, row, from, stride, rows, columns, scale, 1);
        else load_scaled_columns(to, row, from, stride, rows, columns, &kOne, 0);
      });
}

template <class A>
void transpose(Isa isa, A* to, const A* from, int64_t rows, int64_t columns) {
  const int64_t row = padded(columns);
  run(
      isa, [=](auto) __attribute__((always_inline)) {
        for (int64_t j = 0; j < rows; j += kChunk) {
          A* panel = to + j / kPanel * kPanel * row + j % kPanel;
          for (int64_t d = 0; d < row; d += kChunk)
            transpose_chunk(panel + d * kPanel, kPanel, from + j * row + d, row, rows - j);
        }
      });
}

template <class A, class T>
void store(Isa isa, T* to, int64_t stride, const A* from, int64_t rows, int64_t columns, const A* scale, A scales) {
  run(
      isa, [=](auto) __attribute__((always_inline)) { store_rows(to, stride, from, rows, columns, scale, scales); });
}

template void transpose(Isa, float*, const float*, int64_t, int64_t);
template void transpose(Isa, double*, const double*, int64_t, int64_t);

#define ZT_DEFINE_LOAD(A, T)                                           \
  template void load(Isa, A*, const T*, int64_t, int64_t, int64_t, A); \
  template void load_columns(Isa, A*, int64_t, const T*, int64_t, int64_t, int64_t, const A*);
#define ZT_DEFINE_TRANSFER(A, T) \
  ZT_DEFINE_LOAD(A, T)           \
  template void store(Isa, T*, int64_t, const A*, int64_t, int64_t, const A*, A);

ZT_DEFINE_TRANSFER(float, float)
ZT_DEFINE_TRANSFER(float, c10::BFloat16)
ZT_DEFINE_TRANSFER(float, c10::Half)
ZT_DEFINE_TRANSFER(double, double)
ZT_DEFINE_LOAD(float, int8_t)
ZT_DEFINE_LOAD(double, int8_t)

}  // namespace zt::nn::tile
