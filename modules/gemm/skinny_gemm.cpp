#include <cmath>
#include <cstring>

#include "skinny_kernels.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace zt::skinny {

namespace {

// A tile of c and its operands. x and y point to the data of the tile's first row and first column.
struct SkinnyTile {
  const float *x, *y;
  int64_t depth;
  float* c;
  int64_t c_row;
  float alpha, beta;
};
enum class Old : uint8_t { ignored, kept };  // the old content of c: ignored if beta is 0, else kept

// Plain, Avx2 and Avx512 compute a tile of kHeight rows and kVectors registers of kLanes columns. kHighest rows and kWidest
// registers per row are the most for which all sums and one row of y fit into the registers.
struct Plain {
  static constexpr int kHighest = 2, kWidest = 4, kLanes = 4;

  template <Old old, int kHeight, int kVectors>
  static void make(const SkinnyTile& tile, Prefetcher& prefetcher) {
    constexpr int kWidth = kVectors * kLanes;
    float sums[kHeight][kWidth] = {};
    for (int64_t p = 0; p < tile.depth; ++p) {
      if (p % Prefetcher::kSteps == 0) prefetcher.fetch_next();
      for (int r = 0; r < kHeight; ++r) {
        for (int v = 0; v < kWidth; ++v) sums[r][v] = std::fma(tile.x[p * kRows + r], tile.y[p * kColumns + v], sums[r][v]);
      }
    }
    for (int r = 0; r < kHeight; ++r) {
      for (int v = 0; v < kWidth; ++v) {
        float& c = tile.c[r * tile.c_row + v];
        c = old == Old::kept ? std::fma(tile.beta, c, tile.alpha * sums[r][v]) : tile.alpha * sums[r][v];
      }
    }
  }
};

#if defined(__x86_64__)
struct Avx2 {
  static constexpr int kHighest = 4, kWidest = 3, kLanes = 8;

  template <Old old, int kHeight, int kVectors>
  ZT_TARGET_AVX2 static void make(const SkinnyTile& tile, Prefetcher& prefetcher) {
    __m256 sums[kHeight][kVectors];
#pragma GCC unroll 8
    for (int r = 0; r < kHeight; ++r) {
#pragma GCC unroll 3
      for (int v = 0; v < kVectors; ++v) sums[r][v] = _mm256_setzero_ps();
    }
    const float *x = tile.x, *y = tile.y;
    for (int64_t left = tile.depth; left > 0; left -= Prefetcher::kSteps) {
      prefetcher.fetch_next();
      for (int64_t p = left < Prefetcher::kSteps ? left : Prefetcher::kSteps; p > 0; --p, x += kRows, y += kColumns) {
        __m256 row[kVectors];
#pragma GCC unroll 3
        for (int v = 0; v < kVectors; ++v) row[v] = _mm256_loadu_ps(y + v * kLanes);
#pragma GCC unroll 8
        for (int r = 0; r < kHeight; ++r) {
          const __m256 factor = _mm256_broadcast_ss(x + r);
#pragma GCC unroll 3
          for (int v = 0; v < kVectors; ++v) sums[r][v] = _mm256_fmadd_ps(factor, row[v], sums[r][v]);
        }
      }
    }
    const __m256 alpha = _mm256_set1_ps(tile.alpha), beta = _mm256_set1_ps(tile.beta);
#pragma GCC unroll 8
    for (int r = 0; r < kHeight; ++r) {
#pragma GCC unroll 3
      for (int v = 0; v < kVectors; ++v) {
        float* c = tile.c + r * tile.c_row + v * kLanes;
        const __m256 sum = _mm256_mul_ps(alpha, sums[r][v]);
        _mm256_storeu_ps(c, old == Old::kept ? _mm256_fmadd_ps(beta, _mm256_loadu_ps(c), sum) : sum);
      }
    }
  }
};

struct Avx512 {
  static constexpr int kHighest = 8, kWidest = 3, kLanes = 16;

  template <Old old, int kHeight, int kVectors>
  ZT_TARGET_AVX512 static void make(const SkinnyTile& tile, Prefetcher& prefetcher) {
    __m512 sums[kHeight][kVectors];
#pragma GCC unroll 8
    for (int r = 0; r < kHeight; ++r) {
#pragma GCC unroll 3
      for (int v = 0; v < kVectors; ++v) sums[r][v] = _mm512_setzero_ps();
    }
    const float *x = tile.x, *y = tile.y;
    for (int64_t left = tile.depth; left > 0; left -= Prefetcher::kSteps) {
      prefetcher.fetch_next();
      for (int64_t p = left < Prefetcher::kSteps ? left : Prefetcher::kSteps; p > 0; --p, x += kRows, y += kColumns) {
        __m512 row[kVectors];
#pragma GCC unroll 3
        for (int v = 0; v < kVectors; ++v) row[v] = _mm512_loadu_ps(y + v * kLanes);
#pragma GCC unroll 8
        for (int r = 0; r < kHeight; ++r) {
          const __m512 factor = _mm512_set1_ps(x[r]);
#pragma GCC unroll 3
          for (int v = 0; v < kVectors; ++v) sums[r][v] = _mm512_fmadd_ps(factor, row[v], sums[r][v]);
        }
      }
    }
    const __m512 alpha = _mm512_set1_ps(tile.alpha), beta = _mm512_set1_ps(tile.beta);
#pragma GCC unroll 8
    for (int r = 0; r < kHeight; ++r) {
#pragma GCC unroll 3
      for (int v = 0; v < kVectors; ++v) {
        float* c = tile.c + r * tile.c_row + v * kLanes;
        const __m512 sum = _mm512_mul_ps(alpha, sums[r][v]);
        _mm512_storeu_ps(c, old == Old::kept ? _mm512_fmadd_ps(beta, _mm512_loadu_ps(c), sum) : sum);
      }
    }
  }
};
#endif

// Computes the last columns, which do not fill a register. y is padded with zeros, but c is not, so sums go through a buffer.
template <class F, Old old, int kHeight>
void make_narrow(SkinnyTile tile, int64_t columns, Prefetcher& prefetcher) {
  float part[kHeight * F::kLanes] = {};
  float* c = tile.c;
  const int64_t c_row = tile.c_row;
  const auto bytes = static_cast<size_t>(columns) * sizeof(float);
  for (int r = 0; r < kHeight; ++r) std::memcpy(part + r * F::kLanes, c + r * c_row, bytes);
  tile.c = part;
  tile.c_row = F::kLanes;
  F::template make<old, kHeight, 1>(tile, prefetcher);
  for (int r = 0; r < kHeight; ++r) std::memcpy(c + r * c_row, part + r * F::kLanes, bytes);
}

// Computes all rows from row i on, in tiles as high as possible.
template <class F, Old old, int kHeight>
void make_rows(const PanelGemm& panels, Prefetcher& prefetcher, int64_t i) {
  constexpr int64_t kLanes = F::kLanes, kWidth = F::kWidest * kLanes;
  for (; i + kHeight <= panels.rows; i += kHeight) {
    SkinnyTile tile{panels.x + i / kRows * kRows * panels.depth + i % kRows,
                    panels.y,
                    panels.depth,
                    panels.c + i * panels.c_row,
                    panels.c_row,
                    panels.alpha,
                    panels.beta};
    int64_t left = panels.columns;
    for (; left >= kWidth; left -= kWidth, tile.y += kWidth, tile.c += kWidth)
      F::template make<old, kHeight, F::kWidest>(tile, prefetcher);
    for (; left >= kLanes; left -= kLanes, tile.y += kLanes, tile.c += kLanes)
      F::template make<old, kHeight, 1>(tile, prefetcher);
    if (left > 0) make_narrow<F, old, kHeight>(tile, left, prefetcher);
  }
  if constexpr (kHeight > 1) make_rows<F, old, kHeight / 2>(panels, prefetcher, i);
}

template <class F>
void multiply_as(const PanelGemm& panels, Prefetcher& prefetcher) {
  if (panels.beta == 0) make_rows<F, Old::ignored, F::kHighest>(panels, prefetcher, 0);
  else make_rows<F, Old::kept, F::kHighest>(panels, prefetcher, 0);
}

}  // namespace

void multiply(Isa isa, const PanelGemm& panels, Prefetcher& prefetcher) {
#if defined(__x86_64__)
  if (isa == Isa::avx512) return multiply_as<Avx512>(panels, prefetcher);
  if (isa == Isa::avx2) return multiply_as<Avx2>(panels, prefetcher);
#endif
  multiply_as<Plain>(panels, prefetcher);
}

}  // namespace zt::skinny
