// The two GEMMs of few rows of attention with keys and values that stay where a cache has them.
#include <algorithm>
#include <cmath>

#include "tile.h"
#include "tile_forms.h"
#include "zt/base/float16.h"

namespace zt::nn::tile {

namespace {

// Sums of kRows rows and kParts vectors of kChunk columns. They stay in registers.
template <int kRows, int kParts, class A>
struct Sums {
  A of[kRows][kParts][kChunk];

  // Adds x(r) times the kChunk numbers at b(part), for all rows r.
  template <class T, class X, class B>
  ZT_INLINE void add(const X& x, const B& b) {
#pragma GCC unroll 4
    for (int part = 0; part < kParts; ++part) {
      const T* const from = b(part);
      A wide[kChunk];
      for (int k = 0; k < kChunk; ++k) wide[k] = widen(from[k]);
#pragma GCC unroll 4
      for (int r = 0; r < kRows; ++r) {
        const A factor = x(r);
        for (int k = 0; k < kChunk; ++k) of[r][part][k] = std::fma(factor, wide[k], of[r][part][k]);
      }
    }
  }

  ZT_INLINE void read(const A* from, int64_t row) {
    for (int r = 0; r < kRows; ++r) {
      for (int part = 0; part < kParts; ++part) {
        for (int k = 0; k < kChunk; ++k) of[r][part][k] = from ? from[r * row + part * kChunk + k] : A(0);
      }
    }
  }

  ZT_INLINE void write(A* to, int64_t row) const {
    for (int r = 0; r < kRows; ++r) {
      for (int part = 0; part < kParts; ++part) {
        for (int k = 0; k < kChunk; ++k) to[r * row + part * kChunk + k] = of[r][part][k];
      }
    }
  }
};

// Chunks lie anywhere, so the processor does not fetch the next one by itself.
template <class T>
constexpr int64_t kLine = 64 / sizeof(T);

// Keys: a column is a token, and a part is a chunk. The depth is the head's dimension.
struct OfKeys {
  template <int kRows, int kParts, class A, class T>
  ZT_INLINE static void block(const ChunkGemm<A, T>& p, int64_t i, int64_t part) {
    Sums<kRows, kParts, A> sums;
    sums.read(nullptr, 0);
    const A* const a = p.a + i * p.a_row;
    const T* b[kParts];
    const T* next[kParts];
    for (int k = 0; k < kParts; ++k) {
      b[k] = p.chunks[part + k];
      next[k] = p.chunks[std::min(part + kParts + k, parts(p) - 1)];
    }
    for (int64_t d = 0; d < p.dim; ++d) {
      for (int k = 0; k < kParts; ++k) __builtin_prefetch(next[k] + d * p.stride);
      sums.template add<T>(
          [&](int r) __attribute__((always_inline)) { return a[r * p.a_row + d]; },
          [&](int k) __attribute__((always_inline)) { return b[k] + d * p.stride; });
    }
    sums.write(p.c + i * p.c_row + part * kChunk, p.c_row);
  }
  template <class P>
  static int64_t parts(const P& p) {
    return padded(p.tokens) / kChunk;
  }
};

// Values: a column is an element of the head, and the depth is the tokens, chunk by chunk.
struct OfValues {
  template <int kRows, int kParts, class A, class T>
  ZT_INLINE static void block(const ChunkGemm<A, T>& p, int64_t i, int64_t part) {
    Sums<kRows, kParts, A> sums;
    A* const c = p.c + i * p.c_row + part * kChunk;
    sums.read(p.add ? c : nullptr, p.c_row);
    for (int64_t first = 0; first < p.tokens; first += kChunk) {
      const T* const b = p.chunks[first / kChunk] + part * kChunk;
      const T* const next = p.chunks[std::min(first + kChunk, p.tokens - 1) / kChunk] + part * kChunk;
      const A* const a = p.a + i * p.a_row + first;
      for (int64_t j = 0; j < std::min(kChunk, p.tokens - first); ++j) {
        for (int64_t line = 0; line < kParts * kChunk; line += kLine<T>) __builtin_prefetch(next + j * p.stride + line);
        sums.template add<T>(
            [&](int r) __attribute__((always_inline)) { return a[r * p.a_row + j]; },
            [&](int k) __attribute__((always_inline)) { return b + j * p.stride + k * kChunk; });
      }
    }
    sums.write(c, p.c_row);
  }
  template <class P>
  static int64_t parts(const P& p) {
    return p.dim / kChunk;
  }
};

// Computes `kRows` rows from row i on, in blocks as wide as the registers allow.
template <class Of, int kRows, int kParts, class P>
ZT_INLINE void row_block(const P& p, int64_t i, int64_t part) {
  const int64_t parts = Of::parts(p);
  for (; part + kParts <= parts; part += kParts) Of::template block<kRows, kParts>(p, i, part);
  if constexpr (kParts > 1) row_block<Of, kRows, kParts / 2>(p, i, part);
}

template <class Of, int kRows, int kVectors, class P>
ZT_INLINE void all_rows(const P& p, int64_t i) {
  constexpr int kParts = std::clamp(kVectors / kRows, 1, 4);
  for (; i + kRows <= p.rows; i += kRows) row_block<Of, kRows, kParts>(p, i, 0);
  if constexpr (kRows > 1) all_rows<Of, kRows / 2, kVectors>(p, i);
}

template <class Of, class P>
void multiply_chunks(Isa isa, const P& p) {
  run(
      isa, [p]<class F>(F) __attribute__((always_inline)) {
        all_rows<Of, 4, F::kRows * F::kBytes / (kChunk * static_cast<int>(sizeof(float)))>(p, 0);
      });
}

}  // namespace

template <class A, class T>
void multiply_keys(Isa isa, const ChunkGemm<A, T>& p) {
  multiply_chunks<OfKeys>(isa, p);
}

template <class A, class T>
void multiply_values(Isa isa, const ChunkGemm<A, T>& p) {
  multiply_chunks<OfValues>(isa, p);
}

#define ZT_DEFINE_CHUNKS(A, T)                              \
  template void multiply_keys(Isa, const ChunkGemm<A, T>&); \
  template void multiply_values(Isa, const ChunkGemm<A, T>&);

ZT_DEFINE_CHUNKS(float, float)
ZT_DEFINE_CHUNKS(float, c10::BFloat16)
ZT_DEFINE_CHUNKS(float, c10::Half)
ZT_DEFINE_CHUNKS(double, double)

}  // namespace zt::nn::tile
