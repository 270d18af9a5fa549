#include "dots_kernels.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace zt::dots {

namespace {

// Writes an element, whose sum is complete.
template <class T>
inline void write(const DotTask<T>& task, int64_t row, int64_t column, float sum) {
  float& c = task.c[row * task.c_row + column];
  c = task.beta == 0 ? task.alpha * sum : std::fma(task.beta, c, task.alpha * sum);
}

// Adds the partial sums of an element, and writes it.
template <class T>
inline void finish(const DotTask<T>& task, int64_t row, int64_t column, float* sums) {
  for (int64_t half = kLanes / 2; half > 0; half /= 2) {
    for (int64_t i = 0; i < half; ++i) sums[i] += sums[i + half];
  }
  write(task, row, column, sums[0]);
}

// Does so for a tile, whose sums are in registers: [rows][columns] of kLanes numbers.
template <class T, class Sums, int kRows, int kColumns>
inline __attribute__((always_inline)) void finish_tile(const DotTask<T>& task, int64_t row, int64_t column,
                                                       Sums (&sums)[kRows][kColumns]) {
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
    for (int j = 0; j < kColumns; ++j) {
      alignas(64) float lanes[kLanes];
      std::memcpy(lanes, &sums[r][j], sizeof(lanes));
      finish(task, row + r, column + j, lanes);
    }
  }
}

// These compute tiles of kRows rows and kColumns columns: as many as have their sums in registers.
struct PlainDots {
  static constexpr int kMostRows = 1, kWide = 1;

  template <int kRows, int kColumns>
  static void make(const DotTask<float>& task, int64_t row, int64_t column) {
    for (int64_t j = column; j < column + kColumns; ++j) {
      float sums[kLanes] = {};
      const float *x = task.x + row * task.x_row, *w = task.w + j * task.w_row;
      for (int64_t p = 0; p < task.depth; p += kLanes) {
        for (int64_t i = 0; i < kLanes; ++i) sums[i] = std::fma(x[p + i], w[p + i], sums[i]);
      }
      finish(task, row, j, sums);
    }
  }
};

#if defined(__x86_64__)
struct Avx2Dots {
  static constexpr int kMostRows = 2, kWide = 2;

  template <int kRows, int kColumns>
  ZT_TARGET_AVX2 static void make(const DotTask<float>& task, int64_t row, int64_t column) {
    __m256 sums[kRows][kColumns][2];
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
      for (int j = 0; j < kColumns; ++j) sums[r][j][0] = sums[r][j][1] = _mm256_setzero_ps();
    }
    const float *x = task.x + row * task.x_row, *w = task.w + column * task.w_row;
    for (int64_t p = 0; p < task.depth; p += kLanes) {
#pragma GCC unroll 2
      for (int half = 0; half < 2; ++half) {
        __m256 steps[kColumns];
#pragma GCC unroll 8
        for (int j = 0; j < kColumns; ++j) steps[j] = _mm256_loadu_ps(w + j * task.w_row + p + 8 * half);
#pragma GCC unroll 8
        for (int r = 0; r < kRows; ++r) {
          const __m256 factor = _mm256_loadu_ps(x + r * task.x_row + p + 8 * half);
#pragma GCC unroll 8
          for (int j = 0; j < kColumns; ++j) sums[r][j][half] = _mm256_fmadd_ps(factor, steps[j], sums[r][j][half]);
        }
      }
    }
    finish_tile(task, row, column, sums);
  }
};

using SumLanes [[gnu::vector_size(kLanes * sizeof(float))]] = float;

// Adds the lanes of each of 16 vectors, in the order of `finish`: lane e of the result is the sum of vector e. Each addition
// halves the lanes of two vectors, so there are 15 of them. (GCC 12 warns of its own header where intrinsics would shuffle.)
ZT_TARGET_AVX512 inline SumLanes sums_of(const SumLanes (&of)[kLanes]) {
  constexpr int kFrom[kLanes] = {0, 2, 1, 3, 8, 10, 9, 11, 4, 6, 5, 7, 12, 14, 13, 15};  // where the steps leave lane e
  SumLanes v[kLanes];
#pragma GCC unroll 16
  for (int e = 0; e < kLanes; ++e) v[kFrom[e]] = of[e];
#pragma GCC unroll 8
  for (int e = 0; e < 8; ++e) {
    const SumLanes a = v[e], b = v[e + 8];
    v[e] = __builtin_shufflevector(a, b, 0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23) +
           __builtin_shufflevector(a, b, 8, 9, 10, 11, 12, 13, 14, 15, 24, 25, 26, 27, 28, 29, 30, 31);
  }
#pragma GCC unroll 4
  for (int e = 0; e < 4; ++e) {
    const SumLanes a = v[e], b = v[e + 4];
    v[e] = __builtin_shufflevector(a, b, 0, 1, 2, 3, 8, 9, 10, 11, 16, 17, 18, 19, 24, 25, 26, 27) +
           __builtin_shufflevector(a, b, 4, 5, 6, 7, 12, 13, 14, 15, 20, 21, 22, 23, 28, 29, 30, 31);
  }
#pragma GCC unroll 2
  for (int e = 0; e < 2; ++e) {
    const SumLanes a = v[e], b = v[e + 2];
    v[e] = __builtin_shufflevector(a, b, 0, 1, 16, 17, 4, 5, 20, 21, 8, 9, 24, 25, 12, 13, 28, 29) +
           __builtin_shufflevector(a, b, 2, 3, 18, 19, 6, 7, 22, 23, 10, 11, 26, 27, 14, 15, 30, 31);
  }
  const SumLanes a = v[0], b = v[1];
  return __builtin_shufflevector(a, b, 0, 2, 16, 18, 4, 6, 20, 22, 8, 10, 24, 26, 12, 14, 28, 30) +
         __builtin_shufflevector(a, b, 1, 3, 17, 19, 5, 7, 21, 23, 9, 11, 25, 27, 13, 15, 29, 31);
}

// Writes a tile of up to kLanes elements.
template <class T, int kRows, int kColumns>
ZT_TARGET_AVX512 inline void finish_tile512(const DotTask<T>& task, int64_t row, int64_t column,
                                            const __m512 (&sums)[kRows][kColumns]) {
  static_assert(kRows * kColumns <= kLanes);
  SumLanes all[kLanes];
#pragma GCC unroll 16
  for (int e = 0; e < kLanes; ++e) all[e] = e < kRows * kColumns ? (SumLanes)sums[e / kColumns][e % kColumns] : SumLanes{};
  alignas(64) float complete[kLanes];
  *reinterpret_cast<SumLanes*>(complete) = sums_of(all);
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
    for (int j = 0; j < kColumns; ++j) write(task, row + r, column + j, complete[r * kColumns + j]);
  }
}

struct Avx512Dots {
  static constexpr int kMostRows = 4, kWide = 4;

  template <int kRows, int kColumns>
  ZT_TARGET_AVX512 static void make(const DotTask<float>& task, int64_t row, int64_t column) {
    __m512 sums[kRows][kColumns];
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
      for (int j = 0; j < kColumns; ++j) sums[r][j] = _mm512_setzero_ps();
    }
    const float *x = task.x + row * task.x_row, *w = task.w + column * task.w_row;
    for (int64_t p = 0; p < task.depth; p += kLanes) {
      __m512 steps[kColumns];
#pragma GCC unroll 8
      for (int j = 0; j < kColumns; ++j) steps[j] = _mm512_loadu_ps(w + j * task.w_row + p);
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r) {
        const __m512 factor = _mm512_loadu_ps(x + r * task.x_row + p);
#pragma GCC unroll 8
        for (int j = 0; j < kColumns; ++j) sums[r][j] = _mm512_fmadd_ps(factor, steps[j], sums[r][j]);
      }
    }
    finish_tile512(task, row, column, sums);
  }
};

#define ZT_TARGET_BF16 __attribute__((target("avx512f,avx512dq,avx512bw,avx512vl,avx512bf16,prefer-vector-width=512")))

struct PairDots {
  static constexpr int kMostRows = 4, kWide = 4;

  template <int kRows, int kColumns>
  ZT_TARGET_BF16 static void make(const DotTask<Bf16>& task, int64_t row, int64_t column) {
    __m512 sums[kRows][kColumns];
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
      for (int j = 0; j < kColumns; ++j) sums[r][j] = _mm512_setzero_ps();
    }
    const Bf16 *x = task.x + row * task.x_row, *w = task.w + column * task.w_row;
    const Bf16* const next = task.next ? task.next + column * task.w_row : w;
    for (int64_t p = 0; p < task.depth; p += kStep) {
      __m512bh steps[kColumns];
#pragma GCC unroll 8
      for (int j = 0; j < kColumns; ++j) {
        steps[j] = (__m512bh)_mm512_loadu_si512(w + j * task.w_row + p);
        if (kRows == 1) __builtin_prefetch(next + j * task.w_row + p);
      }
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r) {
        const auto factor = (__m512bh)_mm512_loadu_si512(x + r * task.x_row + p);
#pragma GCC unroll 8
        for (int j = 0; j < kColumns; ++j) sums[r][j] = _mm512_dpbf16_ps(sums[r][j], factor, steps[j]);
      }
    }
    finish_tile512(task, row, column, sums);
  }
};
#endif

// Computes columns [column, column + kColumns) of all rows from `row` on, in tiles as high as possible.
template <class F, int kRows, int kColumns, class T>
void make_rows(const DotTask<T>& task, int64_t row, int64_t column) {
  for (; row + kRows <= task.rows; row += kRows) F::template make<kRows, kColumns>(task, row, column);
  if constexpr (kRows > 1) make_rows<F, kRows / 2, kColumns>(task, row, column);
}

// A single row reads more columns at a time, so that enough sums are under way.
template <class F, class T>
void multiply_as(const DotTask<T>& task) {
  int64_t column = 0;
  if (task.rows == 1) {
    for (; column + 2 * F::kWide <= task.columns; column += 2 * F::kWide) make_rows<F, 1, 2 * F::kWide>(task, 0, column);
  }
  for (; column + F::kWide <= task.columns; column += F::kWide) make_rows<F, F::kMostRows, F::kWide>(task, 0, column);
  for (; column < task.columns; ++column) make_rows<F, F::kMostRows, 1>(task, 0, column);
}

}  // namespace

void multiply(Isa isa, const DotTask<float>& task) {
#if defined(__x86_64__)
  if (isa == Isa::avx512) return multiply_as<Avx512Dots>(task);
  if (isa == Isa::avx2) return multiply_as<Avx2Dots>(task);
#endif
  multiply_as<PlainDots>(task);
}

void multiply([[maybe_unused]] const DotTask<Bf16>& task) {
#if defined(__x86_64__)
  multiply_as<PairDots>(task);
#endif
}

// Of 16 pairs, the second steps come first.
void widen(float* to, const Bf16* from, int64_t depth) {
  for (int64_t p = 0; p < padded(depth); p += kStep) {
    uint32_t odd[kLanes], even[kLanes];
    Bf16 last[kStep] = {};
    const Bf16* steps = from + p;
    if (p + kStep > depth) {
      std::copy_n(steps, depth - p, last);
      steps = last;
    }
    for (int64_t i = 0; i < kLanes; ++i) {
      even[i] = static_cast<uint32_t>(steps[2 * i]) << 16;
      odd[i] = static_cast<uint32_t>(steps[2 * i + 1]) << 16;
    }
    std::memcpy(to + p, odd, sizeof(odd));
    std::memcpy(to + p + kLanes, even, sizeof(even));
  }
}

}  // namespace zt::dots
